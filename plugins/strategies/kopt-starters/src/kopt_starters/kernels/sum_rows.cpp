$header
$lanes
// One thread per row, several vectors at a time.
extern "C" void sum(const float* x, float* out, int64_t rows, int64_t cols) {
#pragma omp parallel for num_threads(THREADS) schedule(static)
    for (int64_t row = 0; row < rows; ++row)
        out[row] = sum_over(x + row * cols, cols, 0, [](lanes v, int64_t, int64_t) { return v; });
}
