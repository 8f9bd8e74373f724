$header
$lanes
$exponential
// A row is read from memory once; its exponentials wait in a buffer that stays in the cache.
extern "C" void softmax(const float* x, float* out, int64_t rows, int64_t cols) {
#pragma omp parallel num_threads(THREADS)
    {
        float* buffer = (float*)aligned_alloc(64, (cols / 16 + 4) * 64);
#pragma omp for schedule(static)
        for (int64_t index = 0; index < rows; ++index) {
            const float* row = x + index * cols;
            const float most = largest_of(row, cols);
            const double sum = sum_over(
                row, cols, -__builtin_inff(), [&](lanes v, int64_t at, int64_t) {
                    const lanes power = exponential(v - most);
                    store(buffer + at, power);
                    return power;
                });
            const float scale = 1 / sum;
            write_row(buffer, out + index * cols, cols,
                      [&](lanes v, int64_t, int64_t) { return v * scale; });
        }
        free(buffer);
        finish_streaming();
    }
}
