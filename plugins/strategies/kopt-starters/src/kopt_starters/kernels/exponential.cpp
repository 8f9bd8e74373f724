// exp(x) for x <= 0 to about 1 ulp: x = n ln 2 + r, a minimax polynomial of degree 6 in r
// (relative error 3e-9), and 2^n in two factors so that tiny results are right as well.
static inline lanes exponential(lanes x) {
    const lanes low = x < -104.0f ? -104.0f - (lanes){} : x;
    const lanes shifted = low * 1.44269504f + 12582912.0f;
    const lanes whole = shifted - 12582912.0f;
    lanes r = low - whole * 0.693359375f;
    r = r + whole * 2.12194440e-4f;
    lanes p = 0.0013814467f * r + 0.0083687808f;
    p = p * r + 0.041668393f;
    p = p * r + 0.1666652f;
    p = p * r + 0.49999994f;
    p = p * (r * r) + r + 1.0f;
    const bits n = (bits)shifted - 0x4b400000;
    const bits half = n >> 1;
    const lanes first = (lanes)((half + 127) << 23), second = (lanes)((n - half + 127) << 23);
    return p * first * second;
}
