// Write f(at, count) from `begin` to `end`, past the cache where STREAM is 1.
template <class Function>
static inline void write_range(float* out, int64_t begin, int64_t end, Function f) {
    int64_t at = begin;
    const int64_t ahead = (LANES * 4 - (uintptr_t)(out + at) % (LANES * 4)) % (LANES * 4) / 4;
    if (STREAM && ahead && at < end) {
        const int64_t some = ahead < end - at ? ahead : end - at;
        store_some(out + at, f(at, some), some);
        at += some;
    }
#pragma GCC unroll 4
    for (; at + LANES <= end; at += LANES) {
        const lanes value = f(at, LANES);
        if (STREAM) stream(out + at, value);
        else store(out + at, value);
    }
    if (at < end) store_some(out + at, f(at, end - at), end - at);
}
