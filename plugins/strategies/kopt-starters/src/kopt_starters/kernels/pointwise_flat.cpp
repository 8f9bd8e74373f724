$header
$lanes
$functions
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

// All of an element-wise reference in one pass: each thread has a range of its own.
extern "C" void pointwise($parameters, float* out, int64_t elements$scalar_parameters) {
$scalars#pragma omp parallel num_threads(THREADS)
    {
        const int64_t threads = omp_get_num_threads(), mine = omp_get_thread_num();
        const int64_t share = (elements / threads + 63) / 64 * 64;
        const int64_t begin = mine * share < elements ? mine * share : elements;
        const int64_t end = mine + 1 < threads && begin + share < elements ? begin + share : elements;
        write_range(out, begin, end, [&](int64_t at, int64_t count) {
            (void)at, (void)count;
$body
        });
        finish_streaming();
    }
}
