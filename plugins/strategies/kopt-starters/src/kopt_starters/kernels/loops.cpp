// Loops of kernels over rows, and over columns. Where `SHARED`, all threads work on each of them, else
// each thread has some of its own.
#ifndef BLOCK
#define BLOCK 256
#endif

// One vector of a row that is read from front to back.
static inline lanes near(const float* from, int64_t count) {
    if (PREFETCH) __builtin_prefetch(from + PREFETCH, 0, 3);
    return parameters(from, count);
}

// The same where neighbours lie `stride` apart.
static inline lanes apart(const float* from, int64_t stride, int64_t count) {
    lanes found = {};
    for (int64_t lane = 0; lane < count; ++lane) found[lane] = from[lane * stride];
    return found;
}

// Call f(task) for each of `count` tasks.
template <bool SHARED, class Function> static inline void each(int64_t count, Function f) {
    if (SHARED) {
        for (int64_t task = 0; task < count; ++task) f(task);
        return;
    }
#pragma omp parallel num_threads(THREADS)
    {
#pragma omp for schedule(static) nowait
        for (int64_t task = 0; task < count; ++task) f(task);
        finish_streaming();
    }
}

// Call f(part, begin, end) for each thread's part of `count` elements, of multiples of `unit`; for all
// of them at once where not SHARED.
template <bool SHARED, class Function>
static inline void parts_of(int64_t count, int64_t unit, Function f) {
    if (!SHARED) return f(0, 0, count);
    const int64_t share = ((count + THREADS - 1) / THREADS + unit - 1) / unit * unit;
#pragma omp parallel num_threads(THREADS)
    {
#pragma omp for schedule(static) nowait
        for (int64_t part = 0; part < THREADS; ++part) {
            const int64_t begin = part * share < count ? part * share : count;
            f(part, begin, begin + share < count ? begin + share : count);
        }
        finish_streaming();
    }
}

// Call f(outer, first, last) for each stretch of at most `inner` elements between begin and end.
template <class Function>
static inline void stretches(int64_t begin, int64_t end, int64_t inner, Function f) {
    for (int64_t outer = begin / inner; outer * inner < end; ++outer) {
        const int64_t first = begin - outer * inner, last = end - outer * inner;
        f(outer, first > 0 ? first : 0, last < inner ? last : inner);
    }
}

// Call f(unrolled, at, count) for each vector of a stretch, UNROLL of them at a time.
template <int64_t INNER, class Function> static inline void vectors(int64_t first, int64_t last, Function f) {
    int64_t at = first;
    for (; INNER >= UNROLL * LANES && at + UNROLL * LANES <= last; at += UNROLL * LANES)
#pragma GCC unroll 8
        for (int unrolled = 0; unrolled < UNROLL; ++unrolled) f(unrolled, at + unrolled * LANES, LANES);
    for (; at + LANES <= last; at += LANES) f(0, at, LANES);
    if (at < last) f(0, at, last - at);
}

// The statistics of a row of `count` elements, which sweep(levels, begin, end) adds to UNROLL of them, or
// to the first alone where stretches of INNER elements are short.
template <bool SHARED, int64_t INNER, class Level, class Sweep>
static inline Level gathered(int64_t count, Sweep sweep) {
    const int used = INNER < UNROLL * LANES ? 1 : UNROLL;
    Level parts[SHARED ? THREADS : 1];
    parts_of<SHARED>(count, 16, [&](int64_t part, int64_t begin, int64_t end) {
        Level found[used];
        sweep(found, begin, end);
        for (int unrolled = 1; unrolled < used; ++unrolled) found[0].join(found[unrolled]);
        parts[part] = found[0];
    });
    for (int part = 1; part < (SHARED ? THREADS : 1); ++part) parts[0].join(parts[part]);
    parts[0].gather();
    return parts[0];
}

// The statistics of `width` columns of `count` elements each; add(level, row, column, lanes) for each.
template <bool SHARED, class Level, class Add>
static inline void down(Level* levels, int64_t count, int64_t width, Add add) {
    const int64_t size = BLOCK / LANES;
    Level* const others = SHARED ? new Level[THREADS * size] : levels;
    parts_of<SHARED>(count, 1, [&](int64_t part, int64_t begin, int64_t end) {
        Level* const mine = others + part * size;
        const int64_t even = begin + (end - begin) / UNROLL * UNROLL;
        for (int64_t row = begin; row < even; row += UNROLL)
            for (int64_t at = 0; at < width; at += LANES) {
                const int64_t some = width - at < LANES ? width - at : LANES;
                Level level = mine[at / LANES];
                if (some == LANES)
#pragma GCC unroll 8
                    for (int next = 0; next < UNROLL; ++next) add(level, row + next, at, LANES);
                else
                    for (int next = 0; next < UNROLL; ++next) add(level, row + next, at, some);
                mine[at / LANES] = level;
            }
        for (int64_t row = even; row < end; ++row)
            for (int64_t at = 0; at < width; at += LANES)
                add(mine[at / LANES], row, at, width - at < LANES ? width - at : LANES);
    });
    if (!SHARED) return;
    for (int64_t part = 0; part < THREADS; ++part)
        for (int64_t at = 0; at < size; ++at) levels[at].join(others[part * size + at]);
    delete[] others;
}
