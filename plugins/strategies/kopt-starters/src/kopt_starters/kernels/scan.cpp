$header
$opening
#define PRODUCT $product
#define REVERSE $reverse
#define EXCLUSIVE $exclusive
#define MASKED $masked
#define SHARED $shared
typedef uint8_t bytes __attribute__((vector_size(LANES)));
typedef int64_t places __attribute__((vector_size(LANES * 4)));

static inline doubles all_doubles(double value) { return value - (doubles){}; }
static inline doubles joined(doubles a, doubles b) { return PRODUCT ? a * b : a + b; }
static const double NOTHING = PRODUCT;  // joined to anything, it changes nothing

// Lanes moved by some on, in the direction of the scan; what comes in changes nothing.
static inline doubles moved(doubles x, int by) {
    doubles found = all_doubles(NOTHING);
#if defined(__clang__)
    for (int lane = 0; lane < LANES / 2; ++lane) {
        const int from = REVERSE ? lane + by : lane - by;
        if (from >= 0 && from < LANES / 2) found[lane] = x[from];
    }
#else
    places from;
    for (int lane = 0; lane < LANES / 2; ++lane)
        from[lane] = REVERSE ? (lane + by < LANES / 2 ? lane + by : LANES / 2) : (lane < by ? LANES / 2 : lane - by);
    found = __builtin_shuffle(x, found, from);
#endif
    return found;
}

// The scan of a vector behind `carry`, which becomes that of what is behind it. Only one addition waits for
// the vector before.
static inline doubles scanned(doubles x, double& carry) {
#pragma GCC unroll 4
    for (int by = 1; by < LANES / 2; by *= 2) x = joined(x, moved(x, by));
    const doubles found = joined(all_doubles(carry), EXCLUSIVE ? moved(x, 1) : x);
    carry = PRODUCT ? carry * x[REVERSE ? 0 : LANES / 2 - 1] : carry + x[REVERSE ? 0 : LANES / 2 - 1];
    return found;
}

// Elements times their mask; beyond `count`, what changes nothing.
static inline lanes taken(const float* x, const uint8_t* mask, int64_t at, int64_t count) {
    const lanes found = count == LANES ? load(x + at) : load_some(x + at, count, NOTHING);
    if (!MASKED) return found;
    bytes there = bytes{} + (uint8_t)1;
    __builtin_memcpy(&there, mask + at, count);
    return found * __builtin_convertvector(__builtin_convertvector(there, bits), lanes);
}

static inline void put(float* to, lanes v, int64_t count) {
    if (count < LANES) store_some(to, v, count);
    else if (STREAM && (uintptr_t)to % sizeof(lanes) == 0) stream(to, v);
    else store(to, v);
}

// Scan elements `begin` to `end` of a row from the side where the scan begins; returns the carry.
static inline double scan_row(const float* x, const uint8_t* mask, float* out, int64_t begin, int64_t end,
                              double carry) {
    const auto one = [&](int64_t at, int64_t count) {
        if (PREFETCH) __builtin_prefetch(x + at + (REVERSE ? -PREFETCH : PREFETCH), 0, 3);
        wide v = widened(taken(x, mask, at, count));
        if (REVERSE) v.high = scanned(v.high, carry), v.low = scanned(v.low, carry);
        else v.low = scanned(v.low, carry), v.high = scanned(v.high, carry);
        put(out + at, narrowed(v), count);
    };
    // Whole vectors where `out` is aligned to them, so that they can be written past the cache.
    const int64_t ahead = (LANES - (uintptr_t)(out + begin) / 4 % LANES) % LANES;
    const int64_t first = begin + (ahead < end - begin ? ahead : end - begin);
    const int64_t last = first + (end - first) / LANES * LANES;
    if (REVERSE && last < end) one(last, end - last);
    if (!REVERSE && begin < first) one(begin, first - begin);
    for (int64_t at = first; at < last; at += LANES) one(REVERSE ? first + last - LANES - at : at, LANES);
    if (REVERSE && begin < first) one(begin, first - begin);
    if (!REVERSE && last < end) one(last, end - last);
    return carry;
}

// What elements `begin` to `end` of a row are together.
static inline double joined_row(const float* x, const uint8_t* mask, int64_t begin, int64_t end) {
    $statistic parts[UNROLL];
    vectors<INT64_MAX>(begin, end, [&](int unrolled, int64_t at, int64_t count) {
        parts[unrolled].add(taken(x, mask, at, count), at, count);
    });
    for (int unrolled = 1; unrolled < UNROLL; ++unrolled) parts[0].join(parts[unrolled]);
    parts[0].gather();
    return parts[0].$state.low[0];
}

static void rows(const float* x, const uint8_t* mask, float* out, int64_t outer, int64_t count) {
    each<SHARED>(outer, [&](int64_t row) {
        const float* const from = x + row * count;
        const uint8_t* const masks = mask + (MASKED ? row * count : 0);
        if (!SHARED) {
            scan_row(from, masks, out + row * count, 0, count, NOTHING);
            return;
        }
        double before[THREADS];
        parts_of<true>(count, 64, [&](int64_t part, int64_t begin, int64_t end) {
            before[part] = joined_row(from, masks, begin, end);
        });
        double carry = NOTHING;
        for (int64_t n = 0; n < THREADS; ++n) {
            const int64_t part = REVERSE ? THREADS - 1 - n : n;
            const double mine = before[part];
            before[part] = carry;
            carry = PRODUCT ? carry * mine : carry + mine;
        }
        parts_of<true>(count, 64, [&](int64_t part, int64_t begin, int64_t end) {
            scan_row(from, masks, out + row * count, begin, end, before[part]);
        });
    });
}

// Neighbouring columns side by side, BLOCK of them at a time.
static void columns(const float* x, const uint8_t* mask, float* out, int64_t outer, int64_t count, int64_t inner) {
    const int64_t blocks = (inner + BLOCK - 1) / BLOCK;
    each<false>(outer * blocks, [&](int64_t task) {
        const int64_t start = task % blocks * BLOCK, base = task / blocks * count * inner + start;
        const int64_t width = inner - start < BLOCK ? inner - start : BLOCK;
        wide state[BLOCK / LANES];
        for (wide& each : state) each = all_wide(NOTHING);
        for (int64_t n = 0; n < count; ++n) {
            const int64_t row = base + (REVERSE ? count - 1 - n : n) * inner;
            for (int64_t at = 0; at < width; at += LANES) {
                const int64_t some = width - at < LANES ? width - at : LANES;
                const wide v = widened(taken(x, mask, row + at, some));
                const wide before = state[at / LANES], after = PRODUCT ? before * v : before + v;
                state[at / LANES] = after;
                put(out + row + at, narrowed(EXCLUSIVE ? before : after), some);
            }
        }
    });
}

extern "C" void scan($parameters, float* out, int64_t outer, int64_t count, int64_t inner) {
    if (inner == 1) rows(x, $mask, out, outer, count);
    else columns(x, $mask, out, outer, count, inner);
}
