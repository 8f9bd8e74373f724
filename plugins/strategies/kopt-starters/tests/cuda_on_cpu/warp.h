// Instructions of a warp, as kernels name them: matrices of 8 x 8, and products of 16 x 8 by 16 deep.
#pragma once
#include <cstdint>
#include <cstring>

#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace kopt_on_cpu {
inline unsigned lane() { return running->number % 32; }
inline const void *rows_of[32][32];
inline uint32_t operands[32][32][6];

inline float wide(__half value) { return __half2float(value); }
inline float wide(__nv_bfloat16 value) { return __bfloat162float(value); }
inline int kind_of(const __half *) { return 16; }
inline int kind_of(const __nv_bfloat16 *) { return 32; }
inline int kind;  // of the elements that were loaded last

inline float half_of(uint32_t pair, int which) {
    const uint16_t bits = pair >> (16 * which);
    if (kind == 16) {
        __half value;
        std::memcpy(&value, &bits, 2);
        return wide(value);
    }
    __nv_bfloat16 value;
    std::memcpy(&value, &bits, 2);
    return wide(value);
}
}  // namespace kopt_on_cpu

// ldmatrix.x4: lane 8 m + r says where row r of matrix m is; a lane gets two elements of a row of each.
template <class T> void load_matrices(uint32_t (&to)[4], const T *from) {
    using namespace kopt_on_cpu;
    if (reinterpret_cast<uintptr_t>(from) % 16) {
        std::fprintf(stderr, "a matrix's row is not aligned\n");
        std::abort();
    }
    const auto &all = rows_of[running->number / 32];
    rows_of[running->number / 32][lane()] = from;
    kind = kind_of(from);
    __syncwarp();
    for (int m = 0; m < 4; ++m)
        std::memcpy(&to[m], static_cast<const T *>(all[m * 8 + lane() / 4]) + lane() % 4 * 2, 4);
    __syncwarp();
}

// mma.m16n8k16.row.col: a lane has two elements of rows and of columns at a time.
inline void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    using namespace kopt_on_cpu;
    auto &all = operands[running->number / 32];
    const uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
    std::memcpy(all[lane()], mine, sizeof(mine));
    __syncwarp();
    for (int each = 0; each < 4; ++each) {
        const int row = lane() / 4 + each / 2 * 8, column = lane() % 4 * 2 + each % 2;
        float sum = 0;
        for (int k = 0; k < 16; ++k) {
            const int beside = k % 8 / 2;
            const uint32_t left = all[row % 8 * 4 + beside][row / 8 + k / 8 * 2];
            sum += half_of(left, k % 2) * half_of(all[column * 4 + beside][4 + k / 8], k % 2);
        }
        c[each] += sum;
    }
    __syncwarp();
}

inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t chosen) {
    const uint64_t both = low | static_cast<uint64_t>(high) << 32;
    uint32_t found = 0;
    for (int i = 0; i < 4; ++i)
        found |= static_cast<uint32_t>(both >> (8 * (chosen >> (4 * i) & 7)) & 0xff) << (8 * i);
    return found;
}
