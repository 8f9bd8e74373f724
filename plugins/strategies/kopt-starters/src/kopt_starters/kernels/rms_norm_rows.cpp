$header
$lanes
// A row is read from memory once: the second sweep finds it in the cache.
extern "C" void rms_norm(
    const float* x, $weight_parameter float* out, int64_t rows, int64_t cols, double eps) {
#pragma omp parallel num_threads(THREADS)
    {
#pragma omp for schedule(static)
        for (int64_t index = 0; index < rows; ++index) {
            const float* row = x + index * cols;
            const double squares =
                sum_over(row, cols, 0, [](lanes v, int64_t, int64_t) { return v * v; });
            const float scale = 1 / __builtin_sqrt(squares / cols + eps);
            write_row(row, out + index * cols, cols, [&](lanes v, int64_t at, int64_t count) {
                (void)at, (void)count;
                return v * scale$times_weight;
            });
        }
        finish_streaming();
    }
}
