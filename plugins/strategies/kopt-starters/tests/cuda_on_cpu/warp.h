// Instructions as kernels name them: matrices of 8 rows of 16 bytes, products of 16 x 8, rounding.
#pragma once
#include <cstdint>
#include <cstring>

#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace kopt_on_cpu {
inline unsigned lane() { return running->number % 32; }
inline const void *rows_of[32][32];
inline uint32_t operands[32][32][6];

inline float wide(float value) { return value; }
inline float wide(__half value) { return __half2float(value); }
inline float wide(__nv_bfloat16 value) { return __bfloat162float(value); }
template <class T> float element(uint32_t bits, int which) {
    T value;
    std::memcpy(&value, reinterpret_cast<const char *>(&bits) + which * sizeof(T), sizeof(T));
    return wide(value);
}
inline float (*element_of)(uint32_t, int);  // as those that were loaded last
inline int in_word;                         // how many of them
}  // namespace kopt_on_cpu

// ldmatrix.x4: lane 8 m + r says where row r of matrix m is; a lane gets four bytes of a row of each.
template <class T> void load_matrices(uint32_t (&to)[4], const T *from) {
    using namespace kopt_on_cpu;
    if (reinterpret_cast<uintptr_t>(from) % 16) {
        std::fprintf(stderr, "a matrix's row is not aligned\n");
        std::abort();
    }
    const auto &all = rows_of[running->number / 32];
    rows_of[running->number / 32][lane()] = from;
    element_of = element<T>, in_word = 4 / sizeof(T);
    __syncwarp();
    for (int m = 0; m < 4; ++m)
        std::memcpy(&to[m], static_cast<const char *>(all[m * 8 + lane() / 4]) + lane() % 4 * 4, 4);
    __syncwarp();
}

// mma.m16n8k16.row.col, and for float32 m16n8k8: a lane has four bytes of rows and columns at a time.
inline void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    using namespace kopt_on_cpu;
    auto &all = operands[running->number / 32];
    const uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
    std::memcpy(all[lane()], mine, sizeof(mine));
    __syncwarp();
    for (int each = 0; each < 4; ++each) {
        const int row = lane() / 4 + each / 2 * 8, column = lane() % 4 * 2 + each % 2;
        float sum = 0;
        for (int word = 0; word < 8; ++word) {
            const uint32_t left = all[row % 8 * 4 + word % 4][row / 8 + word / 4 * 2];
            const uint32_t right = all[column * 4 + word % 4][4 + word / 4];
            for (int i = 0; i < in_word; ++i) sum += element_of(left, i) * element_of(right, i);
        }
        c[each] += sum;
    }
    __syncwarp();
}

// cvt.rna.tf32.f32: ten bits after the point, halves away from zero; what is not finite stays.
inline float nearest(float value) {
    if (!std::isfinite(value)) return value;
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    bits = (bits + 0x1000) & ~0x1fffu;
    std::memcpy(&value, &bits, 4);
    return value;
}

inline float __uint_as_float(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t chosen) {
    const uint64_t both = low | static_cast<uint64_t>(high) << 32;
    uint32_t found = 0;
    for (int i = 0; i < 4; ++i)
        found |= static_cast<uint32_t>(both >> (8 * (chosen >> (4 * i) & 7)) & 0xff) << (8 * i);
    return found;
}

// ex2.approx.ftz: results below the smallest normal number are 0.
inline float power_of_two(float x) {
    const float power = std::exp2(x);
    return power < 0x1p-126f ? 0.0f : power;
}

namespace kopt_on_cpu {
struct Phases {  // an mbarrier
    int8_t wanted, missing;
    uint16_t over;
    int32_t bytes;
};
// Where a block of the cluster has what the running thread's has in dynamic shared memory.
template <class T> T *in_block(T *own, unsigned block) {
    const auto &mine = running->home->shared;
    const auto place = reinterpret_cast<char *>(own) - mine.data();
    if (place < 0 || place + sizeof(T) > mine.size() || block >= cluster.size()) {
        std::fprintf(stderr, "not in the dynamic shared memory of block %u\n", block);
        std::abort();
    }
    return reinterpret_cast<T *>(cluster[block].shared.data() + place);
}
inline void count(unsigned long long *barrier, int arrived, int bytes) {
    auto &phases = *reinterpret_cast<Phases *>(barrier);
    ++moves;
    phases.missing -= arrived, phases.bytes += bytes;
    if (phases.missing == 0 && phases.bytes == 0) phases.missing = phases.wanted, ++phases.over;
}
}  // namespace kopt_on_cpu

// mbarrier.init, .arrive.expect_tx and .try_wait.parity.
inline void begin_barrier(unsigned long long *barrier, int arrivals) {
    const auto wanted = static_cast<int8_t>(arrivals);
    *reinterpret_cast<kopt_on_cpu::Phases *>(barrier) = {wanted, wanted, 0, 0};
}
inline void begin_phases(unsigned long long *barrier) { begin_barrier(barrier, 1); }
inline void show_barriers() {}
inline void arm(unsigned long long *barrier, int bytes) { kopt_on_cpu::count(barrier, 1, bytes); }
inline void await(unsigned long long *barrier, int parity) {
    while (reinterpret_cast<kopt_on_cpu::Phases *>(barrier)->over % 2 == parity) kopt_on_cpu::pause();
    ++kopt_on_cpu::moves;
}
// st.async: to another block of the cluster, and to its barrier.
inline void send(float *to, float value, int block, unsigned long long *barrier) {
    *kopt_on_cpu::in_block(to, block) = value;
    kopt_on_cpu::count(kopt_on_cpu::in_block(barrier, block), 0, -4);
}
// barrier.cluster: all threads of all blocks of the cluster.
inline void arrive() {}
inline void wait_for_cluster() { kopt_on_cpu::meet(kopt_on_cpu::all_blocks); }
inline void meet_cluster() { kopt_on_cpu::meet(kopt_on_cpu::all_blocks); }
inline void leave_cluster() { meet_cluster(); }
inline void arrive_at(unsigned long long *barrier, int block) {
    kopt_on_cpu::count(kopt_on_cpu::in_block(barrier, block), 1, 0);
}
// cp.async.bulk to several blocks: there at once, though nobody may rely on that before its barrier.
inline void copy_to(void *to, const void *from, int bytes, unsigned long long *barrier, int blocks) {
    using namespace kopt_on_cpu;
    const auto places = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes;
    if (places % 16) {
        std::fprintf(stderr, "a bulk copy of %d bytes is not aligned\n", bytes);
        std::abort();
    }
    for (unsigned block = 0; block < cluster.size(); ++block) {
        if (!(blocks >> block & 1)) continue;
        in_block(static_cast<char *>(to) + bytes - 1, block);
        std::memcpy(in_block(static_cast<char *>(to), block), from, bytes);
        count(in_block(barrier, block), 0, -bytes);
    }
}
