// Four warps that multiply together, as Hopper's wgmma does: by the names that kernels give it.
#pragma once
#include "warp.h"

namespace kopt_on_cpu {
inline Meeting groups[32];
}  // namespace kopt_on_cpu

// Barriers of 128 threads. Nobody may have left: a thread that ends is not waited for elsewhere.
inline void group_barrier() {
    auto &meeting = kopt_on_cpu::groups[kopt_on_cpu::running->number / 128];
    meeting.wanted = 128;
    kopt_on_cpu::meet(meeting);
}

// Of m64nNk: a thread has the sums of two rows, and of two columns in eight. Both operands lie in
// matrices of eight rows of 16 bytes, 128 bytes apart, and `apart` bytes in depth.
template <class T, int COUNT>
void multiply_group(float (&c)[COUNT], const T *left, uint32_t left_apart, const T *right,
                    uint32_t right_apart, int added) {
    using namespace kopt_on_cpu;
    constexpr int PIECE = 16 / sizeof(T);
    if (reinterpret_cast<uintptr_t>(left) % 16 || reinterpret_cast<uintptr_t>(right) % 16 ||
        left_apart % 16 || right_apart % 16) {
        std::fprintf(stderr, "an operand is not aligned\n");
        std::abort();
    }
    const int thread = running->number % 128;
    for (int at = 0; at < COUNT; ++at) {
        const int row = thread / 32 * 16 + thread % 32 / 4 + at % 4 / 2 * 8;
        const int column = at / 4 * 8 + thread % 4 * 2 + at % 2;
        float sum = 0;
        for (int k = 0; k < 2 * PIECE; ++k) {
            const auto of = [&](const T *first, uint32_t apart, int line) {
                const T *piece = first + (k / PIECE) * (apart / sizeof(T));
                return wide(piece[line * PIECE + k % PIECE]);
            };
            sum += of(left, left_apart, row) * of(right, right_apart, column);
        }
        c[at] = added ? c[at] + sum : sum;
    }
}

template <int COUNT> void hold(float (&)[COUNT]) {}
inline void begin_products() {}
inline void commit_products() {}
inline void await_products() {}
inline void show_to_products() {}

// For descriptors of operands, which nobody reads here.
inline uint64_t __cvta_generic_to_shared(const void *of) { return reinterpret_cast<uint64_t>(of); }

inline uint32_t __float_as_uint(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}
