$header
$lanes
$functions
$ranges
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
