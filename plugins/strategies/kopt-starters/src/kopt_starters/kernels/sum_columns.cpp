$header
$lanes
$columns
// The sum runs over a strided dimension: a thread adds up BLOCK neighbouring columns.
extern "C" void sum(const float* x, float* out, int64_t outer, int64_t count, int64_t inner) {
    const int64_t blocks = (inner + BLOCK - 1) / BLOCK;
#pragma omp parallel for num_threads(THREADS) schedule(static)
    for (int64_t task = 0; task < outer * blocks; ++task) {
        const int64_t start = task % blocks * BLOCK, slab = task / blocks;
        const int64_t width = inner - start < BLOCK ? inner - start : BLOCK;
        double sums[BLOCK];
        add_rows(x + slab * count * inner + start, count, inner, width, sums,
                 [](lanes v, int64_t, int64_t) { return v; });
        for (int64_t column = 0; column < width; ++column)
            out[slab * inner + start + column] = sums[column];
    }
}
