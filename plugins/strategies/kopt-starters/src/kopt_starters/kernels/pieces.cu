#include <cmath>
#include <$include>

using Element = $element;
using Memory = $memory;        // what a thread reads or writes at once
constexpr int PIECE = $piece;  // elements of it

struct Values {
    float at[PIECE];
};

__device__ __forceinline__ float wide(Element value) { return $wide; }

__device__ __forceinline__ Values widened(const Memory &memory) {
    const Element *elements = reinterpret_cast<const Element *>(&memory);
    Values values;
#pragma unroll
    for (int j = 0; j < PIECE; ++j) values.at[j] = wide(elements[j]);
    return values;
}

__device__ __forceinline__ Memory narrowed(const Values &values) {
    Memory memory;
    Element *elements = reinterpret_cast<Element *>(&memory);
#pragma unroll
    for (int j = 0; j < PIECE; ++j) elements[j] = Element(values.at[j]);
    return memory;
}

// 2^x, in one instruction: results below 2^-126 are 0.
__device__ __forceinline__ float power_of_two(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}
