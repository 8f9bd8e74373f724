// Statistics of many elements: each lane has its own, fed vector by vector. What all lanes have seen is
// brought together by `gather`; `join` takes in what another part of the elements left.
// In `add`, `at` is the number of the first lane's element, and `count` how many lanes take part.

typedef double doubles __attribute__((vector_size(LANES * 4)));
typedef float half_lanes __attribute__((vector_size(LANES * 2)));

// As many doubles as there are lanes: sums in them are exact enough in any order.
struct wide {
    doubles low, high;
    wide& operator+=(wide b) { low += b.low, high += b.high; return *this; }
    wide& operator*=(wide b) { low *= b.low, high *= b.high; return *this; }
};
static inline wide operator+(wide a, wide b) { return {a.low + b.low, a.high + b.high}; }
static inline wide operator-(wide a, wide b) { return {a.low - b.low, a.high - b.high}; }
static inline wide operator*(wide a, wide b) { return {a.low * b.low, a.high * b.high}; }
static inline wide operator/(wide a, wide b) { return {a.low / b.low, a.high / b.high}; }
static inline wide all_wide(double value) { return {value - (doubles){}, value - (doubles){}}; }

static inline wide widened(lanes value) {
    half_lanes halves[2];
    __builtin_memcpy(halves, &value, sizeof(value));
    return {__builtin_convertvector(halves[0], doubles), __builtin_convertvector(halves[1], doubles)};
}

static inline lanes narrowed(wide value) {
    const half_lanes halves[2] = {__builtin_convertvector(value.low, half_lanes),
                                  __builtin_convertvector(value.high, half_lanes)};
    lanes found;
    __builtin_memcpy(&found, halves, sizeof(found));
    return found;
}

static inline double total(wide value) {
    const doubles both = value.low + value.high;
    double sum = 0;
    for (int lane = 0; lane < LANES / 2; ++lane) sum += both[lane];
    return sum;
}

static inline bits numbers() {
    bits found;
    for (int lane = 0; lane < LANES; ++lane) found[lane] = lane;
    return found;
}

// The first `count` lanes of a vector, and `rest` in the others.
static inline lanes some_of(lanes value, int64_t count, lanes rest) {
    return count == LANES ? value : choose(numbers() < (int32_t)count, value, rest);
}

struct Sum {
    wide sum = {};
    void add(lanes v, int64_t, int64_t count) { sum += widened(some_of(v, count, lanes{})); }
    void join(const Sum& other) { sum += other.sum; }
    void gather() { sum = all_wide(total(sum)); }
    lanes value() const { return narrowed(sum); }
};

struct Product {
    wide product = all_wide(1);
    void add(lanes v, int64_t, int64_t count) { product *= widened(some_of(v, count, all(1))); }
    void join(const Product& other) { product *= other.product; }
    void gather() {
        double found = 1;
        for (int lane = 0; lane < LANES / 2; ++lane) found *= product.low[lane] * product.high[lane];
        product = all_wide(found);
    }
    lanes value() const { return narrowed(product); }
};

// The largest element (SIGN 1) or the smallest one (SIGN -1); a NaN where there is one.
template <int SIGN> struct Extreme {
    lanes best = all(-SIGN * __builtin_inff());
    static bits beats(lanes a, lanes b) { return (SIGN > 0 ? a > b : a < b) | (a != a); }
    void take(lanes v) { best = choose(beats(v, best), v, best); }
    void add(lanes v, int64_t, int64_t count) { take(some_of(v, count, all(-SIGN * __builtin_inff()))); }
    void join(const Extreme& other) { take(other.best); }
    void gather() {
        for (int lane = 0; lane < LANES; ++lane) take(all(best[lane]));
    }
    lanes value() const { return best; }
};

// Where that element is: the first of equal ones, and the first NaN. STEP is how far lanes are apart.
template <int SIGN, int STEP> struct Place {
    static const int32_t NONE = 0x7fffffff;
    lanes best = all(-SIGN * __builtin_inff());
    bits place = bits{} + NONE;
    void add(lanes v, int64_t at, int64_t count) {
        const lanes kept = some_of(v, count, all(-SIGN * __builtin_inff()));
        const bits better = (SIGN > 0 ? kept > best : kept < best) | ((kept != kept) & (best == best));
        best = choose(better, kept, best);
        place = better ? (int32_t)at + STEP * numbers() : place;
    }
    void join(const Place& other) {
        for (int lane = 0; lane < LANES; ++lane) take(lane, other.best[lane], other.place[lane]);
    }
    void gather() {
        for (int lane = 1; lane < LANES; ++lane) take(0, best[lane], place[lane]);
        best = all(best[0]);
        place = bits{} + place[0];
    }
    // No element was better than infinity: then all are that, and the first is as good as any.
    int64_t position(int lane) const { return place[lane] == NONE ? 0 : place[lane]; }

  private:
    void take(int lane, float v, int32_t at) {
        const bool nan = best[lane] != best[lane], better = SIGN > 0 ? v > best[lane] : v < best[lane];
        const bool same = v == best[lane] || (v != v && nan);
        if ((better && !nan) || (v != v && !nan)) best[lane] = v, place[lane] = at;
        else if (same && at < place[lane]) place[lane] = at;
    }
};

// Mean, and sum of squared distances from it; sums of distances from each lane's first element, which
// no large mean makes inexact.
struct Moments {
    lanes first = {};
    wide sum = {}, squares = {};
    bits seen = {};
    bool begun = false;
    void add(lanes v, int64_t, int64_t count) {
        if (!begun) first = some_of(v, count, lanes{}), begun = true;
        const wide distance = widened(some_of(v, count, first)) - widened(first);
        sum += distance;
        squares += distance * distance;
        seen -= count == LANES ? bits{} - 1 : numbers() < (int32_t)count;
    }
    void join(Moments other) {
        if (!other.begun) return;
        if (!begun) { *this = other; return; }
        other.shift_to(first);
        sum += other.sum;
        squares += other.squares;
        seen += other.seen;
    }
    void gather() {
        shift_to(all(first[0]));
        int32_t all_seen = 0;
        for (int lane = 0; lane < LANES; ++lane) all_seen += seen[lane];
        sum = all_wide(total(sum));
        squares = all_wide(total(squares));
        seen = bits{} + all_seen;
    }
    lanes value() const { return narrowed(widened(first) + sum / counts()); }
    lanes spread() const {
        const lanes found = narrowed(squares - sum * sum / counts());
        return found < 0.0f ? lanes{} : found;
    }

  private:
    wide counts() const { return widened(__builtin_convertvector(seen, lanes)); }
    void shift_to(lanes other) {
        const wide by = widened(first) - widened(other), n = counts();
        squares += by * (sum + sum + n * by);
        sum += n * by;
        first = other;
    }
};
