static inline lanes all(float value) { return value - (lanes){}; }
static inline lanes choose(bits where, lanes a, lanes b) { return where ? a : b; }
static inline lanes as_number(lanes x) { return x; }
static inline lanes as_number(bits where) { return where ? all(1) : all(0); }
static inline lanes absolute(lanes x) { return (lanes)((bits)x & 0x7fffffff); }
static inline lanes smaller(lanes a, lanes b) { return a < b ? a : b; }

static inline lanes square_root(lanes x) {
    for (int lane = 0; lane < LANES; ++lane) x[lane] = __builtin_sqrtf(x[lane]);
    return x;
}

static inline lanes rounded_down(lanes x) {
    for (int lane = 0; lane < LANES; ++lane) x[lane] = __builtin_floorf(x[lane]);
    return x;
}

static inline lanes rounded_up(lanes x) { return -rounded_down(-x); }

// 2^x to about 1 ulp: a polynomial in x less the nearest whole number (relative error 6e-11), and
// that power in two factors, so that tiny and huge results are right as well.
static inline lanes power_of_two(lanes x) {
    const lanes low = x < -150.0f ? all(-150.0f) : x;
    const lanes kept = low > 129.0f ? all(129.0f) : low;
    const lanes shifted = kept + 12582912.0f;
    const lanes r = kept - (shifted - 12582912.0f);
    lanes p = 1.5303700711365693e-05f * r + 1.5469729214118296e-04f;
    p = p * r + 1.3333478473685416e-03f;
    p = p * r + 9.618025613318034e-03f;
    p = p * r + 5.5504109063258665e-02f;
    p = p * r + 2.4022651213498092e-01f;
    p = p * r + 6.931471805568324e-01f;
    p = p * r + 1.0f;
    const bits n = (bits)shifted - 0x4b400000;
    const bits half = n >> 1;
    return p * (lanes)((half + 127) << 23) * (lanes)((n - half + 127) << 23);
}

// erf(x): x times a polynomial in x x up to 1, then 1 - 2^-q for a polynomial q (errors below 2e-9).
static inline lanes error_function(lanes x) {
    const lanes a = absolute(x), s = x * x;
    lanes p = -9.667044571486996e-06f * s + 1.1265961e-04f;
    p = p * s - 8.4840806e-04f;
    p = p * s + 5.2210312e-03f;
    p = p * s - 2.6865431e-02f;
    p = p * s + 1.1283782495236845e-01f;
    p = p * s - 3.761263846802871e-01f;
    p = p * s + 1.1283791670615435f;
    const lanes far = a > 4.0f ? all(4.0f) : a;
    lanes q = 1.093949767436081e-07f * far - 4.792177886445941e-06f;
    q = q * far + 8.987752529165308e-05f;
    q = q * far - 9.894531814404325e-04f;
    q = q * far + 7.307173804162151e-03f;
    q = q * far - 3.909634786666489e-02f;
    q = q * far + 1.602185228282490e-01f;
    q = q * far + 9.102728071502350e-01f;
    q = q * far + 1.631219423367521f;
    q = q * far - 6.006360977670374e-04f;
    const lanes large = 1.0f - power_of_two(-q);
    return (a <= 1.0f) | (x != x) ? x * p : (x < 0.0f ? -large : large);
}

// ln(x): x = m 2^e with m next to 1, and a polynomial in m - 1 (relative error 3e-9).
static inline lanes natural_log(lanes x) {
    const bits tiny = x < 1.17549435e-38f;
    const lanes scaled = tiny ? x * 8388608.0f : x;
    const bits pattern = (bits)scaled;
    const lanes whole = (lanes)((pattern & 0x7fffff) | 0x3f800000);
    const bits high = whole > 1.41421356f;
    const bits exponent = ((pattern >> 23) & 255) - 127 - (high ? bits{} - 1 : bits{}) + (tiny ? bits{} - 23 : bits{});
    lanes e;
    for (int lane = 0; lane < LANES; ++lane) e[lane] = exponent[lane];
    const lanes f = (high ? whole * 0.5f : whole) - 1.0f;
    lanes p = 6.971611471451178e-02f * f - 1.1479734e-01f;
    p = p * f + 1.1685420e-01f;
    p = p * f - 1.2425687e-01f;
    p = p * f + 1.4249058e-01f;
    p = p * f - 1.6667802e-01f;
    p = p * f + 2.0000716e-01f;
    p = p * f - 2.4999997e-01f;
    p = p * f + 3.3333331e-01f;
    const lanes square = f * f;
    const lanes found = (square * f * p - 0.5f * square + e * -2.12194440e-4f) + f + e * 0.693359375f;
    const lanes positive = x > 3.4028235e38f ? x : found;  // infinity
    const lanes known = x == 0.0f ? all(-__builtin_inff()) : positive;
    return (x < 0.0f) | (x != x) ? all(__builtin_nanf("")) : known;
}

static inline lanes log_to_two(lanes x) { return natural_log(x) * 1.44269504f; }
