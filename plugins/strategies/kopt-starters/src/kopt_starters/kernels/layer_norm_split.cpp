$header
$lanes
// Few long rows: all threads share each row; a thread's piece stays in its cache between sweeps.
extern "C" void layer_norm(
    const float* x, $weight_parameter $bias_parameter float* out, int64_t rows, int64_t cols, double eps) {
    double sums[THREADS * 8], squares[THREADS * 8];
#pragma omp parallel num_threads(THREADS)
    {
        const int me = omp_get_thread_num(), team = omp_get_num_threads();
        const int64_t piece = ((cols + team - 1) / team + 15) / 16 * 16;
        const int64_t start = me * piece < cols ? me * piece : cols;
        const int64_t mine = start + piece < cols ? piece : cols - start;
        for (int64_t index = 0; index < rows; ++index) {
            const float* row = x + index * cols + start;
            double sum = 0, square = 0;
            sums[me * 8] = sum_over(row, mine, 0, [](lanes v, int64_t, int64_t) { return v; });
#pragma omp barrier
            for (int other = 0; other < team; ++other) sum += sums[other * 8];
            const float mean = sum / cols;
            squares[me * 8] = sum_over(row, mine, mean, [&](lanes v, int64_t, int64_t) {
                return (v - mean) * (v - mean);
            });
#pragma omp barrier
            for (int other = 0; other < team; ++other) square += squares[other * 8];
            const float scale = 1 / __builtin_sqrt(square / cols + eps);
            write_row(row, out + index * cols + start, mine,
                      [&](lanes v, int64_t at, int64_t count) {
                          at += start, (void)at, (void)count;
                          return (v - mean) * scale$times_weight$plus_bias;
                      });
#pragma omp barrier
        }
        finish_streaming();
    }
}
