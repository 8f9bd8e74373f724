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

// The same of rows of 128 bytes of which eight, from a multiple of 1024 on, have their pieces of 16
// bytes exchanged: c in row r lies at c ^ r % 8. An operand may begin within its first row.
template <int COUNT>
void multiply_rows(float (&c)[COUNT], const char *slots, int left, int right, int added) {
    using namespace kopt_on_cpu;
    const int thread = running->number % 128;
    const auto of = [](const char *first, int line, int k) {
        auto at = reinterpret_cast<uintptr_t>(first) + line * 128 + k * sizeof(__half);
        at ^= (at >> 7 & 7) << 4;
        return wide(*reinterpret_cast<const __half *>(at));
    };
    for (int at = 0; at < COUNT; ++at) {
        const int row = thread / 32 * 16 + thread % 32 / 4 + at % 4 / 2 * 8;
        const int column = at / 4 * 8 + thread % 4 * 2 + at % 2;
        float sum = 0;
        for (int k = 0; k < 16; ++k) sum += of(slots + left, row, k) * of(slots + right, column, k);
        c[at] = added ? c[at] + sum : sum;
    }
}

// bar.sync and bar.arrive, by which two groups of 128 threads take turns: each one's has a barrier.
namespace kopt_on_cpu {
inline Meeting turns[32][2];
}  // namespace kopt_on_cpu
inline kopt_on_cpu::Meeting &turn_of(int group) {
    using namespace kopt_on_cpu;
    auto &meeting = turns[running->home - cluster.data()][group];
    meeting.wanted = 256;
    return meeting;
}
inline void await_turn(int group) { kopt_on_cpu::meet(turn_of(group)); }
inline void pass_turn(int group) {
    auto &meeting = turn_of(1 - group);
    ++kopt_on_cpu::moves;
    if (++meeting.come == meeting.wanted) meeting.come = 0, ++meeting.held;
}

// bar.sync and barrier.red.or of two groups.
namespace kopt_on_cpu {
inline Meeting pairs[32];
inline bool found[32];
}  // namespace kopt_on_cpu
inline void meet_groups() {
    using namespace kopt_on_cpu;
    auto &meeting = pairs[running->home - cluster.data()];
    meeting.wanted = 256;
    meet(meeting);
}
inline bool any_of_groups(bool mine) {
    bool &any = kopt_on_cpu::found[kopt_on_cpu::running->home - kopt_on_cpu::cluster.data()];
    any |= mine;
    meet_groups();
    const bool one = any;
    meet_groups();
    any = false;
    return one;
}

inline unsigned fetch(const uint8_t *from) { return *from; }
inline void fetch_words(unsigned &a, unsigned &b, unsigned &c, unsigned &d, const uint8_t *from) {
    unsigned words[4];
    std::memcpy(words, from, sizeof words);
    a = words[0], b = words[1], c = words[2], d = words[3];
}
inline int block_again() { return blockIdx.x; }
template <int COUNT> void hold(float (&)[COUNT]) {}
inline void begin_products() {}
inline void commit_products() {}
inline void await_products() {}
inline void show_to_products() {}
inline void give_registers() {}
inline void take_registers() {}

// For descriptors of operands, which nobody reads here.
inline uint64_t __cvta_generic_to_shared(const void *of) { return reinterpret_cast<uint64_t>(of); }

inline uint32_t __float_as_uint(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}

// max.NaN.f32
inline float larger_or_nan(float a, float b) { return a != a ? a : b != b ? b : std::max(a, b); }
