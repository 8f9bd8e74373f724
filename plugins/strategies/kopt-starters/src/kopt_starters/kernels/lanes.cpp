#include <cstdint>
#include <cstdlib>
#include <omp.h>

// For kernels that do not declare them as knobs.
#ifndef UNROLL
#define UNROLL 4
#endif
#ifndef STREAM
#define STREAM 0
#endif
#ifndef PREFETCH
#define PREFETCH 0
#endif

#if defined(__AVX512F__)
#define WIDEST 64
#define STORE_PAST_CACHE "vmovntps %1, %0"
#define VECTOR_REGISTER "v"
#elif defined(__AVX__)
#define WIDEST 32
#define STORE_PAST_CACHE "vmovntps %1, %0"
#define VECTOR_REGISTER "x"
#elif defined(__SSE__)
#define WIDEST 16
#define STORE_PAST_CACHE "movntps %1, %0"
#define VECTOR_REGISTER "x"
#else
#define WIDEST 16
#endif

// VECTOR floats, or as many as the machine's registers hold.
#define LANES (VECTOR * 4 < WIDEST ? VECTOR : WIDEST / 4)
typedef float lanes __attribute__((vector_size(LANES * 4)));
typedef float loose_lanes __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t bits __attribute__((vector_size(LANES * 4)));

static inline lanes load(const float* from) { return *(const loose_lanes*)from; }

static inline lanes load_some(const float* from, int64_t count, float rest) {
    lanes value = rest - (lanes){};
    __builtin_memcpy(&value, from, count * sizeof(float));
    return value;
}

static inline void store(float* to, lanes value) { *(loose_lanes*)to = value; }

static inline void store_some(float* to, lanes value, int64_t count) {
    __builtin_memcpy(to, &value, count * sizeof(float));
}

// Store to an aligned address without reading its cache line first.
static inline void stream(float* to, lanes value) {
#ifdef STORE_PAST_CACHE
    __asm__(STORE_PAST_CACHE : "=m"(*(lanes*)to) : VECTOR_REGISTER(value));
#else
    store(to, value);
#endif
}

// Streamed stores become visible to other threads only after this.
static inline void finish_streaming() {
#ifdef STORE_PAST_CACHE
    __asm__ volatile("sfence" ::: "memory");
#endif
}

static inline double total(lanes value) {
    double sum = 0;
    for (int lane = 0; lane < LANES; ++lane) sum += value[lane];
    return sum;
}

static inline lanes larger(lanes a, lanes b) { return a > b ? a : b; }

static inline float largest(lanes value) {
    float found = value[0];
    for (int lane = 1; lane < LANES; ++lane) found = value[lane] > found ? value[lane] : found;
    return found;
}

// Sum f(value, column, count) over a row: float lanes within a chunk, double between chunks, so that the error does not
// grow with the row. `rest` fills the last vector and must map to zero.
template <class Function>
static inline double sum_over(const float* row, int64_t count, float rest, Function f) {
    const int64_t chunk = 128 * LANES * UNROLL;
    double sum = 0;
    for (int64_t start = 0; start < count; start += chunk) {
        const int64_t stop = start + chunk < count ? start + chunk : count;
        lanes parts[UNROLL] = {};
        int64_t at = start;
        for (; at + UNROLL * LANES <= stop; at += UNROLL * LANES)
#pragma GCC unroll 8
            for (int part = 0; part < UNROLL; ++part) {
                if (PREFETCH) __builtin_prefetch(row + at + part * LANES + PREFETCH, 0, 3);
                parts[part] += f(load(row + at + part * LANES), at + part * LANES, LANES);
            }
        for (; at + LANES <= stop; at += LANES) parts[0] += f(load(row + at), at, LANES);
        if (at < stop) parts[0] += f(load_some(row + at, stop - at, rest), at, stop - at);
        for (int part = 1; part < UNROLL; ++part) parts[0] += parts[part];
        sum += total(parts[0]);
    }
    return sum;
}

// Write f(value, column, count) for a whole row; past the cache where STREAM is 1.
template <class Function>
static inline void write_row(const float* row, float* out, int64_t count, Function f) {
    int64_t at = 0;
    const int64_t ahead = (LANES * 4 - (uintptr_t)out % (LANES * 4)) % (LANES * 4) / 4;
    if (STREAM && ahead) {
        at = ahead < count ? ahead : count;
        store_some(out, f(load_some(row, at, 0), 0, at), at);
    }
    for (; at + LANES <= count; at += LANES) {
        const lanes value = f(load(row + at), at, LANES);
        if (STREAM) stream(out + at, value);
        else store(out + at, value);
    }
    if (at < count) store_some(out + at, f(load_some(row + at, count - at, 0), at, count - at), count - at);
}

// A vector of parameters that may be the row's last, shorter one.
static inline lanes parameters(const float* from, int64_t count) {
    return count == LANES ? load(from) : load_some(from, count, 0);
}

static inline float largest_of(const float* row, int64_t count) {
    const lanes lowest = -__builtin_inff() - (lanes){};
    lanes parts[UNROLL];
    for (int part = 0; part < UNROLL; ++part) parts[part] = lowest;
    int64_t at = 0;
    for (; at + UNROLL * LANES <= count; at += UNROLL * LANES)
#pragma GCC unroll 8
        for (int part = 0; part < UNROLL; ++part) {
            if (PREFETCH) __builtin_prefetch(row + at + part * LANES + PREFETCH, 0, 3);
            parts[part] = larger(parts[part], load(row + at + part * LANES));
        }
    for (; at + LANES <= count; at += LANES) parts[0] = larger(parts[0], load(row + at));
    if (at < count) parts[0] = larger(parts[0], load_some(row + at, count - at, -__builtin_inff()));
    for (int part = 1; part < UNROLL; ++part) parts[0] = larger(parts[0], parts[part]);
    return largest(parts[0]);
}
