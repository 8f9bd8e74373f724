// What kernels use of CUDA, on one CPU thread: each of a block's threads is a coroutine that runs
// until it waits for others. One block runs after another, or one cluster of blocks; of these, each
// has dynamic shared memory of its own, but no static one. Data races do not show here.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
#define CUDART_INF_F INFINITY

struct uint3 { unsigned x, y, z; };
struct dim3 : uint3 {
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : uint3{x, y, z} {}
    unsigned count() const { return x * y * z; }
};
#define KOPT_VECTOR(type, name)                                                  \
    struct alignas(2 * sizeof(type)) name##2 { type x, y; };                     \
    struct alignas(4 * sizeof(type) > 16 ? 16 : 4 * sizeof(type)) name##4 {      \
        type x, y, z, w;                                                         \
    };                                                                           \
    inline name##2 make_##name##2(type x, type y) { return {x, y}; }             \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
KOPT_VECTOR(float, float)
KOPT_VECTOR(int, int)
KOPT_VECTOR(unsigned, uint)
KOPT_VECTOR(double, double)

namespace kopt_on_cpu {
constexpr size_t STACK = 256 << 10, WARP = 32;
struct Meeting {
    unsigned wanted = 0, come = 0;
    unsigned long long held = 0;
};
// Dynamic shared memory begins where swizzled operands may, in each block of a cluster alike.
template <class T> struct Aligned {
    using value_type = T;
    static constexpr std::align_val_t START{1024};
    T *allocate(size_t count) { return static_cast<T *>(operator new(count * sizeof(T), START)); }
    void deallocate(T *from, size_t) { operator delete(from, START); }
    bool operator==(const Aligned &) const = default;
};
struct Block {
    uint3 at;
    Meeting everyone;
    std::vector<char, Aligned<char>> shared;
};
struct Thread {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    Block *home;
    uint3 index;
    unsigned number;  // in the cluster, where each block's begin with a new warp
    bool over = false;
};
inline std::vector<Thread> threads;
inline std::vector<Meeting> warps;
inline std::vector<Block> cluster;
inline Meeting all_blocks;
inline std::vector<std::array<char, 16>> exchanged;
inline Thread *running = nullptr;
inline ucontext_t scheduler;
inline unsigned long long moves = 0;
inline dim3 grid, block;
inline const std::function<void()> *body = nullptr;

inline void pause() { swapcontext(&running->context, &scheduler); }

inline void meet(Meeting &meeting) {
    const auto now = meeting.held;
    ++moves;
    if (++meeting.come == meeting.wanted) {
        meeting.come = 0;
        ++meeting.held;
        return;
    }
    while (meeting.held == now) pause();
}

inline void leave(Meeting &meeting) {
    if (--meeting.wanted && meeting.come == meeting.wanted) {
        meeting.come = 0;
        ++meeting.held;
    }
}

inline void begin() {
    (*body)();
    running->over = true;
    ++moves;
    leave(all_blocks);
    leave(running->home->everyone);
    leave(warps[running->number / WARP]);
    pause();
}

// The warps of a block, and where its first one is: blocks begin with a new warp each.
inline unsigned warps_of_block() { return (block.count() + WARP - 1) / WARP; }

inline void add_thread(Block &home, unsigned which, unsigned within) {
    Thread &thread = threads.emplace_back();
    thread.home = &home;
    thread.number = which * warps_of_block() * WARP + within;
    ++warps[thread.number / WARP].wanted;
    thread.index = {within % block.x, within / block.x % block.y, within / block.x / block.y};
    thread.stack.reset(new char[STACK]);
}

inline void run_cluster(const std::function<void()> &kernel) {
    body = &kernel;
    const unsigned count = block.count(), blocks = cluster.size();
    threads.clear();
    threads.reserve(blocks * count);
    exchanged.assign(blocks * warps_of_block() * WARP, {});
    warps.assign(blocks * warps_of_block(), {});
    all_blocks = {blocks * count};
    for (unsigned which = 0; which < blocks; ++which) {
        cluster[which].everyone = {count};
        for (unsigned within = 0; within < count; ++within)
            add_thread(cluster[which], which, within);
    }
    for (Thread &thread : threads) {
        getcontext(&thread.context);
        thread.context.uc_stack.ss_sp = thread.stack.get();
        thread.context.uc_stack.ss_size = STACK;
        thread.context.uc_link = nullptr;
        makecontext(&thread.context, begin, 0);
    }
    for (bool left = true; left;) {
        left = false;
        const auto before = moves;
        for (Thread &thread : threads) {
            if (thread.over) continue;
            left = true;
            running = &thread;
            swapcontext(&scheduler, &thread.context);
        }
        if (left && moves == before) {
            std::fprintf(stderr, "threads of a block wait for others that never come\n");
            std::abort();
        }
    }
}

inline void launch(dim3 across, dim3 each, dim3 together, size_t shared,
                   const std::function<void()> &kernel) {
    grid = across;
    block = each;
    for (unsigned z = 0; z < grid.z; z += together.z)
        for (unsigned y = 0; y < grid.y; y += together.y)
            for (unsigned x = 0; x < grid.x; x += together.x) {
                cluster.clear();
                for (unsigned n = 0; n < together.count(); ++n) {
                    const unsigned across = n % together.x, down = n / together.x % together.y;
                    const uint3 at = {x + across, y + down, z + n / together.x / together.y};
                    // Garbage, as on a device.
                    cluster.push_back({at, {}, {}});
                    cluster.back().shared.assign(shared + 16, char(0xFF));
                }
                run_cluster(kernel);
            }
}

template <class... P, size_t... I>
void call(void (*kernel)(P...), void **given, std::index_sequence<I...>, dim3 across, dim3 each,
          dim3 together, size_t shared) {
    launch(across, each, together, shared, [=] { kernel(*reinterpret_cast<P *>(given[I])...); });
}
template <class... P>
void start(void (*kernel)(P...), void **given, const unsigned *shape, size_t shared) {
    call(kernel, given, std::index_sequence_for<P...>{}, dim3(shape[0], shape[1], shape[2]),
         dim3(shape[3], shape[4], shape[5]), dim3(shape[6], shape[7], shape[8]), shared);
}

// The value of another lane, which all lanes of the warp that are still running ask for.
template <class T> T from_lane(T value, unsigned lane) {
    static_assert(sizeof(T) <= 16);
    const unsigned number = running->number, first = number / WARP * WARP;
    std::memcpy(exchanged[number].data(), &value, sizeof value);
    meet(warps[number / WARP]);
    T other = value;
    if (lane < WARP && first % (warps_of_block() * WARP) + lane < block.count())
        std::memcpy(&other, exchanged[first + lane].data(), sizeof other);
    meet(warps[number / WARP]);
    return other;
}
}  // namespace kopt_on_cpu

#define threadIdx (kopt_on_cpu::running->index)
#define blockIdx (kopt_on_cpu::running->home->at)
#define blockDim (kopt_on_cpu::block)
#define gridDim (kopt_on_cpu::grid)
constexpr int warpSize = 32;

inline void __syncthreads() { kopt_on_cpu::meet(kopt_on_cpu::running->home->everyone); }
inline void __syncwarp(unsigned = ~0u) {
    kopt_on_cpu::meet(kopt_on_cpu::warps[kopt_on_cpu::running->number / 32]);
}
inline void __threadfence() {}
template <class T> T __shfl_sync(unsigned, T value, int lane, int width = 32) {
    const int mine = kopt_on_cpu::running->number % 32;
    return kopt_on_cpu::from_lane(value, mine / width * width + lane % width);
}
template <class T> T __shfl_xor_sync(unsigned, T value, int mask, int = 32) {
    return kopt_on_cpu::from_lane(value, (kopt_on_cpu::running->number % 32) ^ mask);
}
template <class T> T __shfl_down_sync(unsigned, T value, unsigned by, int width = 32) {
    const unsigned mine = kopt_on_cpu::running->number % 32, to = mine + by;
    return kopt_on_cpu::from_lane(value, to / width == mine / width ? to : mine);
}
template <class T> T __shfl_up_sync(unsigned, T value, unsigned by, int width = 32) {
    const unsigned mine = kopt_on_cpu::running->number % 32;
    return kopt_on_cpu::from_lane(value, mine % width >= by ? mine - by : mine);
}
inline unsigned __ballot_sync(unsigned, int predicate) {
    unsigned found = 0;
    for (int lane = 0; lane < 32; ++lane)
        found |= unsigned(kopt_on_cpu::from_lane(int(predicate != 0), lane)) << lane;
    return found;
}

template <class T> T __ldg(const T *from) { return *from; }
template <class T> T __ldcs(const T *from) { return *from; }
template <class T> T __ldca(const T *from) { return *from; }
template <class T> T __ldcg(const T *from) { return *from; }
template <class T> void __stcs(T *to, T value) { *to = value; }
template <class T> void __stcg(T *to, T value) { *to = value; }
template <class T> T atomicAdd(T *to, T value) { T old = *to; *to = old + value; return old; }
template <class T> T atomicMax(T *to, T value) { T old = *to; *to = std::max(old, value); return old; }
inline float __int_as_float(int bits) { float value; std::memcpy(&value, &bits, 4); return value; }
inline int __float_as_int(float value) { int bits; std::memcpy(&bits, &value, 4); return bits; }
inline float __expf(float value) { return std::exp(value); }
inline float __logf(float value) { return std::log(value); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float value) { return 1.0f / value; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __saturatef(float value) { return std::min(1.0f, std::max(0.0f, value)); }
inline float rsqrtf(float value) { return 1.0f / std::sqrt(value); }
inline double rsqrt(double value) { return 1.0 / std::sqrt(value); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __clz(int bits) { return bits ? __builtin_clz(unsigned(bits)) : 32; }
using std::max;
using std::min;
