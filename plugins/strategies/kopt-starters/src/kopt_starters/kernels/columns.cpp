
// Add f(value, row, column) over `rows` rows that lie `stride` apart to sums[0 .. width): float
// lanes for 32 rows at a time, double between, so that the error does not grow with the rows.
template <class Function>
static inline void add_rows(const float* tile, int64_t rows, int64_t stride, int64_t width,
                            double* sums, Function f) {
    float parts[BLOCK + LANES];
    for (int64_t column = 0; column < width; ++column) sums[column] = 0;
    for (int64_t first = 0; first < rows; first += 32) {
        const int64_t last = first + 32 < rows ? first + 32 : rows;
        for (int64_t at = 0; at < width; at += LANES) store(parts + at, (lanes){});
        int64_t row = first;
        for (; row + UNROLL <= last; row += UNROLL) {
            const float* from = tile + row * stride;
            int64_t at = 0;
            for (; at + LANES <= width; at += LANES) {
                lanes sum = load(parts + at);
#pragma GCC unroll 8
                for (int next = 0; next < UNROLL; ++next)
                    sum += f(load(from + next * stride + at), row + next, at);
                store(parts + at, sum);
            }
            for (int next = 0; at < width && next < UNROLL; ++next)
                store(parts + at, load(parts + at) + f(load_some(from + next * stride + at, width - at, 0),
                                                       row + next, at));
        }
        for (; row < last; ++row)
            for (int64_t at = 0; at < width; at += LANES) {
                const int64_t count = width - at < LANES ? width - at : LANES;
                const lanes value = parameters(tile + row * stride + at, count);
                store(parts + at, load(parts + at) + f(value, row, at));
            }
        for (int64_t column = 0; column < width; ++column) sums[column] += parts[column];
    }
}
