// What generated expressions call, one element at a time.
using lanes = float;

__device__ __forceinline__ lanes all(float value) { return value; }
__device__ __forceinline__ lanes choose(bool where, lanes a, lanes b) { return where ? a : b; }
__device__ __forceinline__ lanes as_number(float x) { return x; }
__device__ __forceinline__ lanes as_number(bool where) { return where; }
__device__ __forceinline__ lanes as_number(int where) { return where != 0; }
__device__ __forceinline__ lanes absolute(lanes x) { return fabsf(x); }
__device__ __forceinline__ lanes smaller(lanes a, lanes b) { return a < b ? a : b; }
__device__ __forceinline__ lanes larger(lanes a, lanes b) { return a > b ? a : b; }
__device__ __forceinline__ lanes square_root(lanes x) { return sqrtf(x); }
__device__ __forceinline__ lanes rounded_down(lanes x) { return floorf(x); }
__device__ __forceinline__ lanes rounded_up(lanes x) { return ceilf(x); }
__device__ __forceinline__ lanes error_function(lanes x) { return erff(x); }
__device__ __forceinline__ lanes natural_log(lanes x) { return logf(x); }
__device__ __forceinline__ lanes log_to_two(lanes x) { return log2f(x); }

template <class Map> __device__ __forceinline__ Values mapped(const Values &x, Map &&map) {
    Values values;
#pragma unroll
    for (int j = 0; j < PIECE; ++j) values.at[j] = map(x.at[j]);
    return values;
}
