$header
$lanes
// Few long rows: all threads share each row; a thread's piece stays in its cache between sweeps.
extern "C" void rms_norm(
    const float* x, $weight_parameter float* out, int64_t rows, int64_t cols, double eps) {
    double partial[THREADS * 8];
#pragma omp parallel num_threads(THREADS)
    {
        const int me = omp_get_thread_num(), team = omp_get_num_threads();
        const int64_t piece = ((cols + team - 1) / team + 15) / 16 * 16;
        const int64_t start = me * piece < cols ? me * piece : cols;
        const int64_t mine = start + piece < cols ? piece : cols - start;
        for (int64_t index = 0; index < rows; ++index) {
            const float* row = x + index * cols + start;
            partial[me * 8] = sum_over(row, mine, 0, [](lanes v, int64_t, int64_t) { return v * v; });
#pragma omp barrier
            double squares = 0;
            for (int other = 0; other < team; ++other) squares += partial[other * 8];
            const float scale = 1 / __builtin_sqrt(squares / cols + eps);
            write_row(row, out + index * cols + start, mine,
                      [&](lanes v, int64_t at, int64_t count) {
                          at += start, (void)at, (void)count;
                          return v * scale$times_weight;
                      });
#pragma omp barrier
        }
        finish_streaming();
    }
}
