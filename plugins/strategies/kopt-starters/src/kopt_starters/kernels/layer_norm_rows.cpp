$header
$lanes
// A row is read from memory once: the sweeps for the variance and the result find it in the cache.
extern "C" void layer_norm(
    const float* x, $weight_parameter $bias_parameter float* out, int64_t rows, int64_t cols, double eps) {
#pragma omp parallel num_threads(THREADS)
    {
#pragma omp for schedule(static)
        for (int64_t index = 0; index < rows; ++index) {
            const float* row = x + index * cols;
            const float mean = sum_over(row, cols, 0, [](lanes v, int64_t, int64_t) { return v; }) / cols;
            const double squares = sum_over(row, cols, mean, [&](lanes v, int64_t, int64_t) {
                return (v - mean) * (v - mean);
            });
            const float scale = 1 / __builtin_sqrt(squares / cols + eps);
            write_row(row, out + index * cols, cols, [&](lanes v, int64_t at, int64_t count) {
                (void)at, (void)count;
                return (v - mean) * scale$times_weight$plus_bias;
            });
        }
        finish_streaming();
    }
}
