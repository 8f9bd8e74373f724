// Tensor cores' matrices of 16 x 16: a lane has 8 elements that follow each other, row by row.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace nvcuda::wmma {
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K, class T, class Layout = void> struct fragment {
    static_assert(M == 16 && N == 16 && K == 16);
    static constexpr int num_elements = 8;
    T x[num_elements];
};

inline unsigned lane() { return kopt_on_cpu::running->number % 32; }
inline float number(float value) { return value; }
inline float number(__half value) { return __half2float(value); }
inline float number(__nv_bfloat16 value) { return __bfloat162float(value); }

// Where the element of this lane lies; rows of both operands and of sums as in their matrices.
inline int place(int each, unsigned pitch, bool by_rows) {
    const int at = lane() * 8 + each, row = at / 16, column = at % 16;
    return by_rows ? row * pitch + column : column * pitch + row;
}

inline void check(const void *at, size_t pitch_bytes) {
    if (reinterpret_cast<uintptr_t>(at) % 16 || pitch_bytes % 16) {
        std::fprintf(stderr, "a fragment's memory is not aligned\n");
        std::abort();
    }
}

template <class Use, class T, class Layout>
void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout> &to, const T *from, unsigned pitch) {
    check(from, pitch * sizeof(T));
    for (int i = 0; i < 8; ++i)
        to.x[i] = from[place(i, pitch, std::is_same_v<Layout, row_major>)];
    __syncwarp();
}

template <class T>
void load_matrix_sync(fragment<accumulator, 16, 16, 16, T> &to, const T *from, unsigned pitch,
                      layout_t layout) {
    check(from, pitch * sizeof(T));
    for (int i = 0; i < 8; ++i) to.x[i] = from[place(i, pitch, layout == mem_row_major)];
    __syncwarp();
}

template <class T>
void store_matrix_sync(T *to, const fragment<accumulator, 16, 16, 16, T> &from, unsigned pitch,
                       layout_t layout) {
    check(to, pitch * sizeof(T));
    for (int i = 0; i < 8; ++i) to[place(i, pitch, layout == mem_row_major)] = from.x[i];
}

template <class Use, class T, class Layout>
void fill_fragment(fragment<Use, 16, 16, 16, T, Layout> &to, T value) {
    for (T &each : to.x) each = value;
}

struct Shared {
    float left[256], right[256];
};
inline Shared shared[32];

template <class T, class LeftLayout, class RightLayout>
void mma_sync(fragment<accumulator, 16, 16, 16, float> &to,
              const fragment<matrix_a, 16, 16, 16, T, LeftLayout> &left,
              const fragment<matrix_b, 16, 16, 16, T, RightLayout> &right,
              const fragment<accumulator, 16, 16, 16, float> &added) {
    Shared &all = shared[kopt_on_cpu::running->number / 32];
    for (int i = 0; i < 8; ++i) {
        all.left[lane() * 8 + i] = number(left.x[i]);
        all.right[lane() * 8 + i] = number(right.x[i]);
    }
    __syncwarp();
    for (int i = 0; i < 8; ++i) {
        const int at = lane() * 8 + i, row = at / 16, column = at % 16;
        float sum = added.x[i];
        for (int k = 0; k < 16; ++k) sum += all.left[row * 16 + k] * all.right[k * 16 + column];
        to.x[i] = sum;
    }
    __syncwarp();
}
}  // namespace nvcuda::wmma
