$header
$opening
// The maximum of a row, then the sum of powers above it, which reads it from the cache.
static double loss_of(const float* row, int64_t classes, int64_t label) {
    Extreme<1> tops[UNROLL];
    vectors<INT64_MAX>(0, classes, [&](int unrolled, int64_t at, int64_t count) {
        tops[unrolled].add(near(row + at, count), at, count);
    });
    for (int unrolled = 1; unrolled < UNROLL; ++unrolled) tops[0].join(tops[unrolled]);
    tops[0].gather();
    const lanes top = tops[0].value();
    Sum sums[UNROLL];
    vectors<INT64_MAX>(0, classes, [&](int unrolled, int64_t at, int64_t count) {
        const lanes power = power_of_two((parameters(row + at, count) - top) * 1.44269504f);
        sums[unrolled].add(power, at, count);
    });
    for (int unrolled = 1; unrolled < UNROLL; ++unrolled) sums[0].join(sums[unrolled]);
    sums[0].gather();
    if (label < 0 || label >= classes) return __builtin_nan("");
    return __builtin_log(sums[0].sum.low[0]) - ((double)row[label] - top[0]);
}

// Rows with the class IGNORED have no loss.
extern "C" void cross_entropy(const float* x, const int64_t* labels, float* out, int64_t rows, int64_t classes) {
    const int64_t IGNORED = $ignored;
    double* const losses = (double*)malloc(rows * sizeof(double));
    each<false>(rows, [&](int64_t row) {
        losses[row] = labels[row] == IGNORED ? 0 : loss_of(x + row * classes, classes, labels[row]);
    });
    double all = 0, counted = 0;
    for (int64_t row = 0; row < rows; ++row) all += losses[row], counted += labels[row] != IGNORED;
    (void)all, (void)counted;
$ending
    free(losses);
}
