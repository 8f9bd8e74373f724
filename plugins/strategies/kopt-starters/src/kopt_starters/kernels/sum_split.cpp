$header
$lanes
// Few long rows: every thread sums its piece of each row.
extern "C" void sum(const float* x, float* out, int64_t rows, int64_t cols) {
    const int64_t piece = ((cols + THREADS - 1) / THREADS + 15) / 16 * 16;
    for (int64_t row = 0; row < rows; ++row) {
        double all = 0, partial[THREADS];
#pragma omp parallel for num_threads(THREADS) schedule(static)
        for (int64_t part = 0; part < THREADS; ++part) {
            const int64_t start = part * piece < cols ? part * piece : cols;
            const int64_t mine = start + piece < cols ? piece : cols - start;
            partial[part] = sum_over(x + row * cols + start, mine, 0,
                                     [](lanes v, int64_t, int64_t) { return v; });
        }
        for (int part = 0; part < THREADS; ++part) all += partial[part];
        out[row] = all;
    }
}
