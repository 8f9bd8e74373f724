$header
$lanes
$columns
// The mean runs over a strided dimension: a tile of BLOCK neighbouring columns is read from
// memory once, the second sweep finds it in the cache.
extern "C" void rms_norm(const float* x, $weight_parameter float* out, int64_t outer, int64_t count,
                         int64_t inner, double eps) {
    const int64_t blocks = (inner + BLOCK - 1) / BLOCK;
#pragma omp parallel num_threads(THREADS)
    {
#pragma omp for schedule(static)
        for (int64_t task = 0; task < outer * blocks; ++task) {
            const int64_t start = task % blocks * BLOCK;
            const int64_t offset = task / blocks * count * inner + start;
            const int64_t width = inner - start < BLOCK ? inner - start : BLOCK;
            double squares[BLOCK];
            float scale[BLOCK + LANES];
            add_rows(x + offset, count, inner, width, squares,
                     [](lanes v, int64_t, int64_t) { return v * v; });
            for (int64_t column = 0; column < width; ++column)
                scale[column] = 1 / __builtin_sqrt(squares[column] / count + eps);
            for (int64_t at = 0; at < count; ++at)
                write_row(x + offset + at * inner, out + offset + at * inner, width,
                          [&](lanes v, int64_t column, int64_t) {
                              return v * load(scale + column)$times_weight;
                          });
        }
        finish_streaming();
    }
}
