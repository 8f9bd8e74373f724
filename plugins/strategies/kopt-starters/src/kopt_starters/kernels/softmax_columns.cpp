$header
$lanes
$exponential
$columns
// Softmax over a strided dimension: a tile of BLOCK neighbouring columns is read from memory
// once; the later sweeps find it in the cache.
extern "C" void softmax(const float* x, float* out, int64_t outer, int64_t count, int64_t inner) {
    const int64_t blocks = (inner + BLOCK - 1) / BLOCK;
#pragma omp parallel num_threads(THREADS)
    {
#pragma omp for schedule(static)
        for (int64_t task = 0; task < outer * blocks; ++task) {
            const int64_t start = task % blocks * BLOCK;
            const int64_t offset = task / blocks * count * inner + start;
            const int64_t width = inner - start < BLOCK ? inner - start : BLOCK;
            float most[BLOCK + LANES], scale[BLOCK + LANES];
            double sums[BLOCK];
            for (int64_t at = 0; at < width; at += LANES)
                store(most + at, -__builtin_inff() - (lanes){});
            for (int64_t at = 0; at < count; ++at)
                for (int64_t column = 0; column < width; column += LANES) {
                    const int64_t some = width - column < LANES ? width - column : LANES;
                    const lanes value = parameters(x + offset + at * inner + column, some);
                    store(most + column, larger(load(most + column), value));
                }
            add_rows(x + offset, count, inner, width, sums, [&](lanes v, int64_t, int64_t column) {
                return exponential(v - load(most + column));
            });
            for (int64_t column = 0; column < width; ++column) scale[column] = 1 / sums[column];
            for (int64_t at = 0; at < count; ++at)
                write_row(x + offset + at * inner, out + offset + at * inner, width,
                          [&](lanes v, int64_t column, int64_t) {
                              return exponential(v - load(most + column)) * load(scale + column);
                          });
        }
        finish_streaming();
    }
}
