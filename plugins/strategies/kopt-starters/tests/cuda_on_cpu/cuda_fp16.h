// Half precision as g++ has it.
#pragma once
#include "cuda_on_cpu.h"

struct __half {
    _Float16 value;
    __half() = default;
    explicit __half(float from) : value(_Float16(from)) {}
};
struct alignas(4) __half2 { __half x, y; };
using half = __half;
using half2 = __half2;
inline float __half2float(__half from) { return float(from.value); }
inline __half __float2half(float from) { return __half(from); }
inline __half __float2half_rn(float from) { return __half(from); }
inline float2 __half22float2(__half2 from) { return {float(from.x.value), float(from.y.value)}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
inline __half2 __float22half2_rn(float2 from) { return __floats2half2_rn(from.x, from.y); }
