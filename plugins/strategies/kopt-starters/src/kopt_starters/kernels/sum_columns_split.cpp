$header
$lanes
$columns
// Few outputs: every thread sums its share of the strided dimension, then the shares are added.
extern "C" void sum(const float* x, float* out, int64_t outer, int64_t count, int64_t inner) {
    const int64_t share = (count + THREADS - 1) / THREADS;
    double* shares = (double*)malloc(THREADS * inner * sizeof(double));
    for (int64_t slab = 0; slab < outer; ++slab) {
#pragma omp parallel for num_threads(THREADS) schedule(static)
        for (int64_t part = 0; part < THREADS; ++part) {
            const int64_t first = part * share < count ? part * share : count;
            const int64_t rows = first + share < count ? share : count - first;
            for (int64_t start = 0; start < inner; start += BLOCK)
                add_rows(x + (slab * count + first) * inner + start, rows, inner,
                         inner - start < BLOCK ? inner - start : BLOCK,
                         shares + part * inner + start, [](lanes v, int64_t, int64_t) { return v; });
        }
        for (int64_t column = 0; column < inner; ++column) {
            double all = 0;
            for (int part = 0; part < THREADS; ++part) all += shares[part * inner + column];
            out[slab * inner + column] = all;
        }
    }
    free(shares);
}
