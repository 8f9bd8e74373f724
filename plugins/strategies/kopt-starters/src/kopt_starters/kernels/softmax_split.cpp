$header
$lanes
$exponential
// Few long rows: all threads share each row; a thread keeps its exponentials in a buffer.
extern "C" void softmax(const float* x, float* out, int64_t rows, int64_t cols) {
    float most[THREADS * 16];
    double partial[THREADS * 8];
#pragma omp parallel num_threads(THREADS)
    {
        const int me = omp_get_thread_num(), team = omp_get_num_threads();
        const int64_t piece = ((cols + team - 1) / team + 15) / 16 * 16;
        const int64_t start = me * piece < cols ? me * piece : cols;
        const int64_t mine = start + piece < cols ? piece : cols - start;
        float* buffer = (float*)aligned_alloc(64, (mine / 16 + 4) * 64);
        for (int64_t index = 0; index < rows; ++index) {
            const float* row = x + index * cols + start;
            most[me * 16] = largest_of(row, mine);
#pragma omp barrier
            float top = most[0];
            for (int other = 1; other < team; ++other)
                top = most[other * 16] > top ? most[other * 16] : top;
            partial[me * 8] = sum_over(
                row, mine, -__builtin_inff(), [&](lanes v, int64_t at, int64_t) {
                    const lanes power = exponential(v - top);
                    store(buffer + at, power);
                    return power;
                });
#pragma omp barrier
            double sum = 0;
            for (int other = 0; other < team; ++other) sum += partial[other * 8];
            const float scale = 1 / sum;
            write_row(buffer, out + index * cols + start, mine,
                      [&](lanes v, int64_t, int64_t) { return v * scale; });
#pragma omp barrier
        }
        free(buffer);
        finish_streaming();
    }
}
