// What is reduced over a row: `include` takes a piece of it, `add` an element, `join` what others saw.
struct Sum {
    float sum = 0;
    __device__ __forceinline__ void add(float value) { sum += value; }
    __device__ __forceinline__ void include(const Values &values) {
        float piece = values.at[0];
#pragma unroll
        for (int j = 1; j < PIECE; ++j) piece += values.at[j];
        sum += piece;
    }
    __device__ __forceinline__ void join(const Sum &other) { sum += other.sum; }
    __device__ __forceinline__ float value() const { return sum; }
};

struct Product {
    float product = 1;
    __device__ __forceinline__ void add(float value) { product *= value; }
    __device__ __forceinline__ void include(const Values &values) {
#pragma unroll
        for (int j = 0; j < PIECE; ++j) add(values.at[j]);
    }
    __device__ __forceinline__ void join(const Product &other) { product *= other.product; }
    __device__ __forceinline__ float value() const { return product; }
};

// The largest value for SIGN 1, the smallest for -1; NaN where there is one.
template <int SIGN> struct Extreme {
    float most = -INFINITY;
    __device__ __forceinline__ void take(float value) {
        most = value > most || value != value ? value : most;
    }
    __device__ __forceinline__ void add(float value) { take(SIGN * value); }
    __device__ __forceinline__ void include(const Values &values) {
#pragma unroll
        for (int j = 0; j < PIECE; ++j) add(values.at[j]);
    }
    __device__ __forceinline__ void join(const Extreme &other) { take(other.most); }
    __device__ __forceinline__ float value() const { return SIGN * most; }
};

// Count, mean and the sum of squared distances from it, joined as Chan et al. merge two samples.
struct Moments {
    float count = 0, mean = 0, squares = 0;
    __device__ __forceinline__ void add(float value) { merge(1, value, 0); }
    __device__ __forceinline__ void include(const Values &values) {
        float middle = 0, apart = 0;
#pragma unroll
        for (int j = 0; j < PIECE; ++j) middle += values.at[j];
        middle *= 1.0f / PIECE;
#pragma unroll
        for (int j = 0; j < PIECE; ++j)
            apart = fmaf(values.at[j] - middle, values.at[j] - middle, apart);
        merge(PIECE, middle, apart);
    }
    __device__ __forceinline__ void join(const Moments &other) {
        merge(other.count, other.mean, other.squares);
    }
    __device__ __forceinline__ void merge(float more, float middle, float apart) {
        const float before = count, distance = middle - mean;
        count += more;
        const float share = more / fmaxf(count, 1);  // both may have seen nothing
        mean = fmaf(distance, share, mean);
        squares += fmaf(distance * distance * before, share, apart);
    }
    __device__ __forceinline__ float value() const { return mean; }
    __device__ __forceinline__ float spread() const { return squares; }
};

// The largest value, and the sum of exponentials relative to it. An infinity is not taken from
// itself: -inf never, and inf not where BOTH, as in logsumexp.
template <bool BOTH> struct Powers {
    float most = -INFINITY, sum = 0;
    static __device__ __forceinline__ float shift(float top) {
        return (BOTH ? fabsf(top) == INFINITY : top == -INFINITY) ? 0.0f : top;
    }
    static __device__ __forceinline__ float power(float below) {
        return power_of_two(below * 1.4426950408889634f);
    }
    __device__ __forceinline__ void add(float value) { merge(value, power(value - shift(value))); }
    __device__ __forceinline__ void include(const Values &values) {
        float top = most;
#pragma unroll
        for (int j = 0; j < PIECE; ++j) top = fmaxf(top, values.at[j]);
        const float from = shift(top);
        float piece = 0;
#pragma unroll
        for (int j = 0; j < PIECE; ++j) piece += power(values.at[j] - from);
        sum = fmaf(sum, power(most - from), piece);
        most = top;
    }
    __device__ __forceinline__ void join(const Powers &other) { merge(other.most, other.sum); }
    __device__ __forceinline__ void merge(float largest, float powers) {
        const float top = fmaxf(most, largest), from = shift(top);
        sum = sum * power(most - from) + powers * power(largest - from);
        most = top;
    }
    __device__ __forceinline__ float value() const { return most; }
    __device__ __forceinline__ float spread() const { return sum; }
};
