// Matrix product in float32 on Hopper's tensor cores, each number as two float16s: a float16 has the
// 11 leading bits that they take of a float32 too, at twice the rate. Three products of halves make up
// a float32's product; the fourth, of both small ones, would be too small to count.
//
// Halves are laid out first, in blocks of 64 numbers of the depth. In a block each row of the left and
// each column of the right operand has a power of two of its own, as the range of a float16 is small.
// What is 2**16 times smaller than the largest there loses bits. Where that is more than an eighth of
// them, or where powers are too large or too small to be multiplied, `direct` computes the product.
//
// Tensor cores cut off what does not fit as they add, which adds up: so every block is summed from
// zero, the small products first, and sums of blocks are added to each other as float32.
$header
#include <cuda_fp16.h>
#include <cstdint>

using Element = float;
__device__ __forceinline__ float wide(Element value) { return value; }

constexpr int HIGH = 128;    // rows of a tile
constexpr int DEEP = 32;     // of what is fetched at once: half a block
constexpr int LINE = 128;    // bytes of a row of it: its numbers' large halves, then the small ones
constexpr int ATOM = 1024;   // bytes of eight rows, which begin at multiples of it
// Bytes that are fetched: rows, and what undoes the scale of each.
constexpr int LEFT = (LINE + 4) * HIGH, RIGHT = (LINE + 4) * BLOCK_N;
constexpr int LEFT_SLOT = (LEFT + ATOM - 1) / ATOM * ATOM;
constexpr int RIGHT_SLOT = (RIGHT + ATOM - 1) / ATOM * ATOM;
constexpr int SLOT = LEFT_SLOT + RIGHT_SLOT;
constexpr int SUMS = BLOCK_N / 2;    // that a thread has of a product of 64 rows
constexpr int BARRIERS = 128;        // bytes, before the slots
constexpr int SLOTS = ($room - BARRIERS - ATOM) / SLOT < 8 ? ($room - BARRIERS - ATOM) / SLOT : 8;
constexpr bool ALIGNED = $aligned;  // whether the result takes 8 bytes at a time
static_assert(SLOTS >= 3, "");

__device__ __forceinline__ unsigned address_of(const void *shared) {
    return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

// What wgmma is told about an operand: where it begins, that eight rows are 1024 bytes, and that their
// pieces of 16 bytes are exchanged: c in row r lies at c ^ r % 8.
__device__ __forceinline__ uint64_t described(const char *slots, int offset) {
    return (uint64_t(1 << 30 | ATOM >> 4) << 32) + (1 << 16 | address_of(slots) >> 4) + (offset >> 4);
}

// Add the product of 64 rows over a depth of 32 bytes; or let it be the sum. Operands begin `left` and
// `right` bytes after `slots`.
__device__ __forceinline__ void multiply_rows(float (&c)[SUMS], const char *slots, int left, int right,
                                              int added) {
    const uint64_t a = described(slots, left), b = described(slots, right);
$products
}

$wgmma

// A barrier in shared memory: a phase is over when so many have arrived, and as many bytes have come
// as it was armed with.
__device__ __forceinline__ void begin_barrier(unsigned long long *barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_of(barrier)), "r"(arrivals)
                 : "memory");
}

__device__ __forceinline__ void show_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void arm(unsigned long long *barrier, int bytes) {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }"
                 ::"r"(address_of(barrier)), "r"(bytes) : "memory");
}

__device__ __forceinline__ void await(unsigned long long *barrier, int parity) {
    asm volatile(
        "{ .reg .pred over; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;"
        " @!over bra AGAIN; }"
        ::"r"(address_of(barrier)), "r"(parity) : "memory");
}

// Arrive at a block's barrier that lies where this one does here.
__device__ __forceinline__ void arrive_at(unsigned long long *barrier, int block) {
    asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;"
                 " mbarrier.arrive.shared::cluster.b64 _, [there]; }"
                 ::"r"(address_of(barrier)), "r"(block) : "memory");
}

// Copy bytes to where `to` is in each of the cluster's blocks that `blocks` has a bit for, and count
// them at the barrier of each.
__device__ __forceinline__ void copy_to(void *to, const void *from, int bytes,
                                        unsigned long long *barrier, int blocks) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1], %2, [%3], %4;"
        ::"r"(address_of(to)), "l"(from), "r"(bytes), "r"(address_of(barrier)),
        "h"(static_cast<unsigned short>(blocks)) : "memory");
}

__device__ __forceinline__ void meet_cluster() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// Warpgroups multiply in turns: while one does, the other one adds up. Who has the turn passes it.
__device__ __forceinline__ void await_turn(int group) {
    asm volatile("bar.sync %0, 256;" ::"r"(group + 1) : "memory");
}

__device__ __forceinline__ void pass_turn(int group) {
    asm volatile("bar.arrive %0, 256;" ::"r"(2 - group) : "memory");
}

// Registers go from the warps that fetch to those that have sums.
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;" ::: "memory");
}

__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;" ::: "memory");
}

// The power of two that makes the number with these bits less than 2**15, but not by half.
__device__ __forceinline__ float scale_of(int bits) { return __int_as_float((268 - (bits >> 23)) << 23); }
__device__ __forceinline__ float unscale_of(int bits) { return __int_as_float(((bits >> 23) - 14) << 23); }

// Whether powers of two of such numbers, or of none, can be multiplied by each other.
__device__ __forceinline__ bool moderate(int bits) {
    return bits == 0 || (bits >> 23 >= 127 - 60 && bits >> 23 <= 127 + 60);
}

constexpr int ROWS = 64, BLOCK = 2 * DEEP;  // rows and depth that are laid out by one block of threads

// Lay out rows of an operand, from row `first` of a tile of HIGHEST on, with zeros where it has none.
template <int HIGHEST>
__device__ __forceinline__ void lay_out(float *staged, const Element *from, char *tile, int first,
                                        int *hard, int rows, int depth, long long row_stride,
                                        long long depth_stride) {
    // Threads beside each other read what is beside each other, in steps of four rows or numbers.
    const bool along = depth_stride == 1;
    const int outer = threadIdx.x / 64, inner = threadIdx.x % 64;
    const int left = inner < (along ? depth : rows) ? (along ? rows : depth) - outer : 0;
    const Element *next =
        from + (along ? outer * row_stride + inner : inner * row_stride + outer * depth_stride);
    const long long step = 4 * (along ? row_stride : depth_stride);
    float *const at = staged + (along ? outer * (BLOCK + 1) + inner : inner * (BLOCK + 1) + outer);
    const int hop = along ? 4 * (BLOCK + 1) : 4;
#pragma unroll
    for (int n = 0; n < 16; ++n, next += step) at[n * hop] = 4 * n < left ? *next : 0.0f;
    __syncthreads();
    // Four threads have a row: eight numbers of each half of the block.
    const int row = threadIdx.x / 4, part = threadIdx.x % 4;
    const float *const mine = staged + row * (BLOCK + 1) + part * 8;
    float values[2][8];
    int top = 0;
    unsigned least = 0xffffffffu;  // without zeros
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        values[i / 8][i % 8] = mine[i / 8 * DEEP + i % 8];
        const int bits = __float_as_int(values[i / 8][i % 8]) & 0x7fffffff;
        top = max(top, bits), least = min(least, unsigned(bits) - 1u);
    }
    top = max(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = max(top, __shfl_xor_sync(0xffffffffu, top, 2));
    const bool usable = moderate(top) && top;
    const float scale = usable ? scale_of(top) : 1.0f, unscale = usable ? unscale_of(top) : 1.0f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        __half2 large[4], small[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float one = values[half][2 * i] * scale, other = values[half][2 * i + 1] * scale;
            large[i] = __floats2half2_rn(one, other);
            const float2 kept = __half22float2(large[i]);
            small[i] = __floats2half2_rn(one - kept.x, other - kept.y);
        }
        char *const to = tile + half * ((LINE + 4) * HIGHEST), *const line = to + (first + row) * LINE;
        *reinterpret_cast<uint4 *>(line + (part ^ row % 8) * 16) = *reinterpret_cast<uint4 *>(large);
        *reinterpret_cast<uint4 *>(line + ((part + 4) ^ row % 8) * 16) = *reinterpret_cast<uint4 *>(small);
        if (part == 0) reinterpret_cast<float *>(to + HIGHEST * LINE)[first + row] = unscale;
    }
    // Numbers with bits lost are rarely looked for.
    int lost = 0;
    const unsigned enough = usable ? (top >> 23) - 16 << 23 : 0;  // bits of a quarter, before it was scaled
    if (least + 1u < enough && least + 1u > 0)
        for (int i = 0; i < 16; ++i) {
            const unsigned bits = __float_as_int(mine[i / 8 * DEEP + i % 8]) & 0x7fffffff;
            lost += bits > 0 && bits < enough;
        }
    lost += __shfl_xor_sync(0xffffffffu, lost, 1);
    lost += __shfl_xor_sync(0xffffffffu, lost, 2);
    if (lost > BLOCK / 8 || !moderate(top)) *hard = 1;
}

extern "C" __global__ void __launch_bounds__(256)
lay(const Element *__restrict__ a, const Element *__restrict__ b, uint4 *__restrict__ left,
    uint4 *__restrict__ right, int *__restrict__ hard, int lefts, int M, int N, int K, $strides) {
    __shared__ float staged[ROWS * (BLOCK + 1)];
    const int blocks = (K + BLOCK - 1) / BLOCK;
    const int down = (M + 2 * HIGH - 1) / (2 * HIGH) * (2 * HIGH) / ROWS;
    const int across = (N + BLOCK_N - 1) / BLOCK_N * BLOCK_N / ROWS;
    const int first = lefts * down * blocks;
    const bool of_left = blockIdx.x < first;
    const int at = of_left ? blockIdx.x : blockIdx.x - first, count = of_left ? down : across;
    // Blocks beside each other are so in memory as well.
    const bool along = (of_left ? a_depth : b_depth) == 1;
    const int part = along ? at / blocks % count : at % count;
    const int k = along ? at % blocks : at / count % blocks;
    const long long z = at / (blocks * count);
    const int row = part * ROWS, depth = K - k * BLOCK;
    if (of_left) {
        char *to = reinterpret_cast<char *>(left) +
                   ((z * (down * ROWS / HIGH) + row / HIGH) * blocks + k) * (2ll * LEFT);
        lay_out<HIGH>(staged, a + $a_batch + row * a_row + k * BLOCK * a_depth, to, row % HIGH, hard,
                      M - row, depth, a_row, a_depth);
    } else {
        char *to = reinterpret_cast<char *>(right) +
                   ((z * (across * ROWS / BLOCK_N) + row / BLOCK_N) * blocks + k) * (2ll * RIGHT);
        lay_out<BLOCK_N>(staged, b + $b_batch + row * b_column + k * BLOCK * b_depth, to, row % BLOCK_N,
                         hard, N - row, depth, b_column, b_depth);
    }
}

struct Result {
    Element *out;
    int M, N;
    long long o_row;
    $bias_members

    __device__ __forceinline__ float finished(float value, int row, int column) const {
        return $finish;
    }
    __device__ __forceinline__ void put(float one, float other, int row, int column) const {
        if (row >= M || column >= N) return;
        Element *place = out + row * o_row + column;
        one = finished(one, row, column);
        if (ALIGNED) {
            *reinterpret_cast<float2 *>(place) = float2{one, finished(other, row, column + 1)};
        } else {
            place[0] = one;
            if (column + 1 < N) place[1] = finished(other, row, column + 1);
        }
    }
};

// Where, of a row, the large halves of 16 numbers of the depth begin, and the small ones.
__device__ constexpr int large(int k) { return k * 32; }
__device__ constexpr int small(int k) { return LINE / 2 + k * 32; }

// The sums of 64 rows over all blocks: two warpgroups go over the same slots.
__device__ __forceinline__ void sum_up(float (&sums)[SUMS], char *slots, unsigned long long *full,
                                       unsigned long long *empty, int blocks, int group) {
    const int lane = threadIdx.x % 32, row = group * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;
    float piece[SUMS];
#pragma unroll
    for (int i = 0; i < SUMS; ++i) sums[i] = piece[i] = 0.0f;
    int slot = 0, parity = 0;
    if (group == 1) pass_turn(group);
    for (int block = 0; block < blocks; ++block) {
        int lefts[2], taken[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            await(full + slot, parity);
            lefts[i] = slot * SLOT, taken[i] = slot;
            if (++slot == SLOTS) slot = 0, parity ^= 1;
        }
        const float *const rows_of = reinterpret_cast<const float *>(slots + lefts[0] + HIGH * LINE);
        const float2 *const others =
            reinterpret_cast<const float2 *>(slots + lefts[0] + LEFT_SLOT + BLOCK_N * LINE) + lane % 4;
        const float low = rows_of[row], high = rows_of[row + 8];
        await_turn(group);
        hold(piece);
        begin_products();
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            const int left = lefts[n / 2] + group * 64 * LINE, right = lefts[n / 2] + LEFT_SLOT;
            multiply_rows(piece, slots, left + small(n % 2), right + large(n % 2), n);
            multiply_rows(piece, slots, left + large(n % 2), right + small(n % 2), 1);
        }
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            const int left = lefts[n / 2] + group * 64 * LINE, right = lefts[n / 2] + LEFT_SLOT;
            multiply_rows(piece, slots, left + large(n % 2), right + large(n % 2), 1);
        }
        commit_products();
        if (group == 0 || block + 1 < blocks) pass_turn(group);
        await_products();
        hold(piece);
#pragma unroll
        for (int j = 0; j < SUMS / 4; ++j) {
            const float2 other = others[j * 4];
            sums[4 * j] = fmaf(piece[4 * j], low * other.x, sums[4 * j]);
            sums[4 * j + 1] = fmaf(piece[4 * j + 1], low * other.y, sums[4 * j + 1]);
            sums[4 * j + 2] = fmaf(piece[4 * j + 2], high * other.x, sums[4 * j + 2]);
            sums[4 * j + 3] = fmaf(piece[4 * j + 3], high * other.y, sums[4 * j + 3]);
        }
        __syncwarp();
        if (lane < 4) arrive_at(empty + (lane < 2 ? taken[0] : taken[1]), lane % 2);
    }
}

// Two blocks of a cluster have tiles above each other: each fetches half of the columns for both.
extern "C" __global__ void __launch_bounds__(384, 1)
multiply_tiles(const uint4 *__restrict__ left, const uint4 *__restrict__ right,
               const int *__restrict__ hard, $parameters) {
    extern __shared__ __align__(128) unsigned char memory[];
    if (*hard) return;
    unsigned long long *const full = reinterpret_cast<unsigned long long *>(memory), *empty = full + SLOTS;
    char *const slots = reinterpret_cast<char *>(memory) +
                        (address_of(memory) + BARRIERS + ATOM - 1) / ATOM * ATOM - address_of(memory);
    const int blocks = (K + BLOCK - 1) / BLOCK, down = (M + 2 * HIGH - 1) / (2 * HIGH);
    const int across = (N + BLOCK_N - 1) / BLOCK_N, rank = blockIdx.x % 2;
    const int tile = blockIdx.x / 2 % (down * across);
    const long long z = blockIdx.x / 2 / (down * across);
    // Columns of GROUP pairs of tiles follow each other: what they read meets in the L2 cache.
    const int first = tile / (GROUP * across) * GROUP, high = min(GROUP, down - first);
    const int within = tile % (GROUP * across);
    const int high_tile = (first + within % high) * 2 + rank, wide_tile = within / high;
    if (threadIdx.x == 0) {
        for (int i = 0; i < SLOTS; ++i) begin_barrier(full + i, 1), begin_barrier(empty + i, 16);
        show_barriers();
    }
    meet_cluster();
    // The same in a warp, as the compiler sees.
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    if (group == 2) {
        give_registers();
        if (threadIdx.x == 256) {
            const char *of_left = reinterpret_cast<const char *>(left) +
                                  ($left_z * (2 * down) + high_tile) * blocks * (2ll * LEFT);
            const char *of_right = reinterpret_cast<const char *>(right) +
                                   ($right_z * across + wide_tile) * blocks * (2ll * RIGHT) +
                                   rank * (RIGHT / 2);
            int slot = 0, parity = 1;
            for (int n = 0; n < 2 * blocks; ++n) {
                await(empty + slot, parity);
                arm(full + slot, LEFT + RIGHT);
                char *const to = slots + slot * SLOT;
                copy_to(to, of_left + n * (long long)LEFT, LEFT, full + slot, 1 << rank);
                copy_to(to + LEFT_SLOT + rank * (RIGHT / 2), of_right + n * (long long)RIGHT, RIGHT / 2,
                        full + slot, 3);
                if (++slot == SLOTS) slot = 0, parity ^= 1;
            }
        }
    } else {
        take_registers();
        float sums[SUMS];
        sum_up(sums, slots, full, empty, blocks, group);
        const Result result{$result};
        const int row = high_tile * HIGH + group * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
        const int column = wide_tile * BLOCK_N + threadIdx.x % 4 * 2;
#pragma unroll
        for (int j = 0; j < SUMS / 4; ++j) {
            result.put(sums[4 * j], sums[4 * j + 1], row, column + 8 * j);
            result.put(sums[4 * j + 2], sums[4 * j + 3], row + 8, column + 8 * j);
        }
    }
    meet_cluster();  // nobody's memory is written to after it has ended
}

// The product of operands as they are, where halves are not enough.
extern "C" __global__ void __launch_bounds__(256)
direct(const Element *__restrict__ a, const Element *__restrict__ b, const int *__restrict__ hard,
       $parameters, $strides) {
    if (!*hard) return;
    __shared__ float lefts[16][65], rights[16][65];
    const int down = (M + 63) / 64, across = (N + 63) / 64;
    const int i = threadIdx.x / 16, j = threadIdx.x % 16;
    for (long long tile = blockIdx.x; tile < (long long)batches * down * across; tile += gridDim.x) {
        const long long z = tile / (down * across);
        const int row = tile / across % down * 64, column = tile % across * 64;
        const Element *from_a = a + $a_batch + row * a_row, *from_b = b + $b_batch + column * b_column;
        float sums[4][4] = {}, part[4][4] = {};
        for (int k = 0; k < K; k += 16) {
            for (int n = threadIdx.x; n < 1024; n += 256) {
                const bool a_along = a_depth == 1, b_along = b_depth == 1;
                const int ak = a_along ? n % 16 : n / 64, am = a_along ? n / 16 : n % 64;
                const int bk = b_along ? n % 16 : n / 64, bn = b_along ? n / 16 : n % 64;
                lefts[ak][am] = row + am < M && k + ak < K ? from_a[am * a_row + (k + ak) * a_depth] : 0.0f;
                rights[bk][bn] =
                    column + bn < N && k + bk < K ? from_b[bn * b_column + (k + bk) * b_depth] : 0.0f;
            }
            __syncthreads();
            for (int n = 0; n < 16; ++n)
#pragma unroll
                for (int y = 0; y < 4; ++y)
#pragma unroll
                    for (int x = 0; x < 4; ++x)
                        part[y][x] = fmaf(lefts[n][i + 16 * y], rights[n][j + 16 * x], part[y][x]);
            __syncthreads();
            if (k % 64 == 48 || k + 16 >= K)  // there may be much to add up
#pragma unroll
                for (int y = 0; y < 4; ++y)
#pragma unroll
                    for (int x = 0; x < 4; ++x) sums[y][x] += part[y][x], part[y][x] = 0.0f;
        }
        const Result result{$result};
        for (int y = 0; y < 4; ++y)
            for (int x = 0; x < 4; ++x) {
                const int m = row + i + 16 * y, n = column + j + 16 * x;
                if (m < M && n < N) result.out[m * o_row + n] = result.finished(sums[y][x], m, n);
            }
    }
}
