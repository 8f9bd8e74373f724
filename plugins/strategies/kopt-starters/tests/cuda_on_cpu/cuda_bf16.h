// bfloat16: the upper half of a float, rounded to the nearest.
#pragma once
#include "cuda_on_cpu.h"

struct __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    explicit __nv_bfloat16(float from) {
        uint32_t all;
        std::memcpy(&all, &from, 4);
        bits = from != from ? 0x7fff : (all + 0x7fff + (all >> 16 & 1)) >> 16;
    }
};
struct alignas(4) __nv_bfloat162 { __nv_bfloat16 x, y; };
using nv_bfloat16 = __nv_bfloat16;
inline float __bfloat162float(__nv_bfloat16 from) {
    const uint32_t all = uint32_t(from.bits) << 16;
    float value;
    std::memcpy(&value, &all, 4);
    return value;
}
inline __nv_bfloat16 __float2bfloat16(float from) { return __nv_bfloat16(from); }
inline __nv_bfloat16 __float2bfloat16_rn(float from) { return __nv_bfloat16(from); }
inline float2 __bfloat1622float2(__nv_bfloat162 from) {
    return {__bfloat162float(from.x), __bfloat162float(from.y)};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
    return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
