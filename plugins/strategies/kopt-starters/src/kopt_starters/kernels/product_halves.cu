// Matrix product in float32 on Hopper's tensor cores, each number as two float16s: a float16 has the
// 11 leading bits that they take of a float32 too, at twice the rate. Three products of halves make up
// a float32's product; the fourth, of both small ones, would be too small to count.
//
// Halves are laid out first, in blocks of 64 numbers of the depth. In a block each row of the left and
// each column of the right operand has a power of two of its own, as the range of a float16 is small.
// What is 2**15 times smaller than the largest there loses bits. Where that is more than an eighth of
// them, or where powers are too large or too small to be multiplied, infinity takes the power's place,
// and no sum there is finite. A tile with such sums is computed from the operands as they are.
//
// Powers are read while shared memory is busy with products, so they are bytes: the upper seven bits
// of an exponent, whose last bit is always set.
//
// Tensor cores cut off what does not fit as they add, which adds up: so every block is summed from
// zero, the small products first, and sums of blocks are added to each other as float32.
$header
#include <cuda_fp16.h>
#include <cstdint>

using Element = float;
__device__ __forceinline__ float wide(Element value) { return value; }

constexpr int HIGH = 128;      // rows of a tile
constexpr int DEEP = 32;       // of what is fetched at once: half a block
constexpr int LINE = 128;      // bytes of a row of it: its numbers' large halves, then the small ones
constexpr int ATOM = 1024;     // bytes of eight rows, which begin at multiples of it
constexpr int LEFT = LINE * HIGH, RIGHT = LINE * BLOCK_N, SLOT = LEFT + RIGHT;  // bytes that are fetched
constexpr int SUMS = BLOCK_N / 2;  // that a thread has of a product of 64 rows
constexpr int BARRIERS = 128;  // bytes, before the slots
constexpr int PITCH = 40;      // floats of a row as a warp writes 32 columns of its result
constexpr int STAGED = 132;    // floats of a row that is 128 long, where a tile is computed without halves
constexpr int BESIDE = 8 * 16 * PITCH;  // floats after the slots, for either
static_assert(BESIDE >= 2 * 16 * STAGED, "");
constexpr int ROOM = $room - BARRIERS - ATOM - BESIDE * 4;
constexpr int SLOTS = ROOM / SLOT < 8 ? ROOM / SLOT : 8;
static_assert(SLOTS >= 3, "");

__device__ __forceinline__ unsigned address_of(const void *shared) {
    return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

// What wgmma is told about an operand: where it begins, that eight rows are 1024 bytes, and that their
// pieces of 16 bytes are exchanged: c in row r lies at c ^ r % 8.
__device__ __forceinline__ uint64_t described(const char *slots, int offset) {
    return uint64_t(1 << 30 | ATOM >> 4) << 32 | ((1 << 16 | address_of(slots) >> 4) + offset / 16u);
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

// That barriers have begun is shown by a fence of its own.
__device__ __forceinline__ void meet_cluster() {
    asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// Nobody arrives at a barrier of a block that has ended.
__device__ __forceinline__ void leave_cluster() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// Warpgroups multiply in turns: while one does, the other one adds up. Who has the turn passes it.
__device__ __forceinline__ void await_turn(int group) {
    asm volatile("bar.sync %0, 256;" ::"r"(group + 1) : "memory");
}

__device__ __forceinline__ void pass_turn(int group) {
    asm volatile("bar.arrive %0, 256;" ::"r"(2 - group) : "memory");
}

// Reads that stay where they are among what is above.
__device__ __forceinline__ unsigned fetch(const uint8_t *from) {
    unsigned byte;
    asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(byte) : "l"(from));
    return byte;
}

__device__ __forceinline__ void fetch_words(unsigned &a, unsigned &b, unsigned &c, unsigned &d,
                                            const uint8_t *from) {
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(from));
}

// The block's number, which the compiler does not keep in a register until then.
__device__ __forceinline__ int block_again() {
    int block;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    return block;
}

// Both warpgroups that multiply meet.
__device__ __forceinline__ void meet_groups() {
    asm volatile("bar.sync 3, 256;" ::: "memory");
}

__device__ __forceinline__ bool any_of_groups(bool mine) {
    int any;
    asm volatile(
        "{ .reg .pred one, all; setp.ne.s32 one, %1, 0; barrier.cta.red.or.pred all, 3, 256, one;"
        " selp.s32 %0, 1, 0, all; }"
        : "=r"(any) : "r"(static_cast<int>(mine)) : "memory");
    return any;
}

// Registers go from the warps that fetch to those that have sums.
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;" ::: "memory");
}

__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;" ::: "memory");
}

// The exponent, and its last bit is set, of a power of two by which the number with these bits can be
// divided to be less than 2**15, but not by much.
__device__ __forceinline__ int exponent_of(int bits) { return (bits >> 23) - 14 | 1; }

constexpr unsigned NO_POWER = 127;  // infinity's byte

// The power of two with one of a word's bytes.
__device__ __forceinline__ float power_of(unsigned word, int byte) {
    return __int_as_float(__byte_perm(word, 0x00800000u, byte << 12 | 0x644));
}

// Whether powers of two of such numbers, or of none, can be multiplied by each other.
__device__ __forceinline__ bool moderate(int bits) {
    return bits == 0 || (bits >> 23 >= 127 - 60 && bits >> 23 <= 127 + 60);
}

constexpr int ROWS = 64, BLOCK = 2 * DEEP;  // rows and depth that are laid out by one block of threads

// Where a row's power is: those of the columns that a thread has sums of follow each other.
template <int HIGHEST, bool OF_LEFT>
__device__ __forceinline__ int place_of_power(int row) {
    return OF_LEFT ? row : row % 8 / 2 * (HIGHEST / 4) + row / 8 * 2 + row % 2;
}

// Lay out rows of an operand, from row `first` of a tile of HIGHEST on, with zeros where it has none.
template <int HIGHEST, bool OF_LEFT>
__device__ __forceinline__ void lay_out(float *staged, const Element *from, uint4 *to,
                                        uint8_t *powers, int tile, int first, int rows, int depth,
                                        long long row_stride, long long depth_stride) {
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
    const int exponent = usable ? exponent_of(top) : 127;
    const float scale = __int_as_float((254 - exponent) << 23);
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
        uint4 *const line = to + ((tile * 2ll + half) * HIGHEST + first + row) * (LINE / 16);
        line[part ^ row % 8] = *reinterpret_cast<uint4 *>(large);
        line[(part + 4) ^ row % 8] = *reinterpret_cast<uint4 *>(small);
    }
    // Numbers with bits lost are rarely looked for.
    int lost = 0;
    const unsigned enough = usable ? exponent - 2 << 23 : 0;  // bits of a quarter, before it was scaled
    if (least + 1u < enough && least + 1u > 0)
        for (int i = 0; i < 16; ++i) {
            const unsigned bits = __float_as_int(mine[i / 8 * DEEP + i % 8]) & 0x7fffffff;
            lost += bits > 0 && bits < enough;
        }
    lost += __shfl_xor_sync(0xffffffffu, lost, 1);
    lost += __shfl_xor_sync(0xffffffffu, lost, 2);
    const unsigned power = lost <= BLOCK / 8 && moderate(top) ? exponent >> 1 : NO_POWER;
    if (part == 0) powers[tile * HIGHEST + place_of_power<HIGHEST, OF_LEFT>(first + row)] = power;
}

extern "C" __global__ void __launch_bounds__(256, 6)
lay(const Element *__restrict__ a, const Element *__restrict__ b, uint4 *__restrict__ left,
    uint4 *__restrict__ right, uint8_t *__restrict__ rows, uint8_t *__restrict__ columns,
    int lefts, int M, int N, int K, $strides) {
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
        const int tile = (z * (down * ROWS / HIGH) + row / HIGH) * blocks + k;
        lay_out<HIGH, true>(staged, a + $a_batch + row * a_row + k * BLOCK * a_depth, left, rows, tile,
                            row % HIGH, M - row, depth, a_row, a_depth);
    } else {
        const int tile = (z * (across * ROWS / BLOCK_N) + row / BLOCK_N) * blocks + k;
        lay_out<BLOCK_N, false>(staged, b + $b_batch + row * b_column + k * BLOCK * b_depth, right,
                                columns, tile, row % BLOCK_N, N - row, depth, b_column, b_depth);
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
    // A warp's sums of 16 rows: 32 columns at a time, so that it writes what lies beside each other.
    __device__ __forceinline__ void put_rows(const float (&sums)[SUMS], float *staged, int row,
                                             int column) const {
        const int lane = threadIdx.x % 32;
        Element *place = out + row * o_row + column + lane;
        float2 *const at = reinterpret_cast<float2 *>(staged + lane / 4 * PITCH) + lane % 4;
#pragma unroll
        for (int n = 0; n < SUMS / 4; n += 4) {
            __syncwarp();
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                at[j * 4] = float2{sums[4 * (n + j)], sums[4 * (n + j) + 1]};
                at[j * 4 + 4 * PITCH] = float2{sums[4 * (n + j) + 2], sums[4 * (n + j) + 3]};
            }
            __syncwarp();
#pragma unroll
            for (int i = 0; i < 16; ++i, place += o_row) {
                const float value = staged[i * PITCH + lane];
                if (row + i < M && column + 8 * n + lane < N)
                    *place = finished(value, row + i, column + 8 * n + lane);
            }
            place += 32 - 16 * o_row;
        }
    }
};

// Where, of a row, the large halves of 16 numbers of the depth begin, and the small ones.
__device__ constexpr int large(int k) { return k * 32; }
__device__ constexpr int small(int k) { return LINE / 2 + k * 32; }

// The sums of 64 rows over all blocks: two warpgroups go over the same slots.
__device__ __forceinline__ void sum_up(float (&sums)[SUMS], char *slots, unsigned long long *full,
                                       unsigned long long *empty, const uint8_t *rows,
                                       const uint8_t *columns, int left_tile, int right_tile, int blocks,
                                       int group) {
    const int lane = threadIdx.x % 32;
    int row = left_tile * HIGH + threadIdx.x / 32 * 16 + lane / 4;
    int column = right_tile * BLOCK_N + lane % 4 * (BLOCK_N / 4);
    float piece[SUMS];
#pragma unroll
    for (int i = 0; i < SUMS; ++i) sums[i] = piece[i] = 0.0f;
    int slot = 0, parity = 0;
    if (group == 1) pass_turn(group);
    for (int block = 0; block < blocks; ++block, row += HIGH, column += BLOCK_N) {
        int lefts[2], taken[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            await(full + slot, parity);
            lefts[i] = slot * SLOT, taken[i] = slot;
            if (++slot == SLOTS) slot = 0, parity ^= 1;
        }
        await_turn(group);
        hold(piece);
        begin_products();
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            const int left = lefts[n / 2] + group * 64 * LINE, right = lefts[n / 2] + LEFT;
            multiply_rows(piece, slots, left + small(n % 2), right + large(n % 2), n);
            multiply_rows(piece, slots, left + large(n % 2), right + small(n % 2), 1);
        }
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            const int left = lefts[n / 2] + group * 64 * LINE, right = lefts[n / 2] + LEFT;
            multiply_rows(piece, slots, left + large(n % 2), right + large(n % 2), 1);
        }
        commit_products();
        if (group == 0 || block + 1 < blocks) pass_turn(group);
        const unsigned one = fetch(rows + row), other = fetch(rows + row + 8);
        unsigned powers[BLOCK_N / 16];
#pragma unroll
        for (int i = 0; i < BLOCK_N / 16; i += 4)
            fetch_words(powers[i], powers[i + 1], powers[i + 2], powers[i + 3], columns + column + 4 * i);
        await_products();
        __syncwarp();
        if (lane < 4) arrive_at(empty + (lane < 2 ? taken[0] : taken[1]), lane % 2);
        hold(piece);
        const float low = power_of(one, 0), high = power_of(other, 0);
#pragma unroll
        for (int j = 0; j < SUMS / 4; ++j) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float power = power_of(powers[j / 2], j % 2 * 2 + i);
                sums[4 * j + i] = fmaf(piece[4 * j + i], low * power, sums[4 * j + i]);
                sums[4 * j + 2 + i] = fmaf(piece[4 * j + 2 + i], high * power, sums[4 * j + 2 + i]);
            }
        }
    }
}

$direct
// The tile of a block of threads.
struct Place {
    int down, across, high, wide, z;

    __device__ __forceinline__ Place(int block, int M, int N)
        : down((M + 2 * HIGH - 1) / (2 * HIGH)), across((N + BLOCK_N - 1) / BLOCK_N) {
        const int tile = block / 2 % (down * across);
        // Columns of GROUP pairs of tiles follow each other: what they read meets in the L2 cache.
        const int first = tile / (GROUP * across) * GROUP, rows = min(GROUP, down - first);
        const int within = tile % (GROUP * across);
        high = (first + within % rows) * 2 + block % 2, wide = within / rows;
        z = block / 2 / (down * across);
    }
    // Of all tiles of an operand.
    __device__ __forceinline__ int left() const { return $left_z * (2 * down) + high; }
    __device__ __forceinline__ int right() const { return $right_z * across + wide; }
};

// Two blocks of a cluster have tiles above each other: each fetches half of the columns for both.
extern "C" __global__ void __launch_bounds__(384, 1)
multiply_tiles(const Element *__restrict__ a, const Element *__restrict__ b,
               const uint4 *__restrict__ left, const uint4 *__restrict__ right,
               const uint8_t *__restrict__ rows, const uint8_t *__restrict__ columns, $parameters,
               $strides) {
    extern __shared__ __align__(128) unsigned char memory[];
    unsigned long long *const full = reinterpret_cast<unsigned long long *>(memory), *empty = full + SLOTS;
    char *const slots = reinterpret_cast<char *>(memory) +
                        (address_of(memory) + BARRIERS + ATOM - 1) / ATOM * ATOM - address_of(memory);
    float *const beside = reinterpret_cast<float *>(slots + SLOTS * SLOT);
    const int blocks = (K + BLOCK - 1) / BLOCK, rank = blockIdx.x % 2;
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
            const Place place(blockIdx.x, M, N);
            const int left_tile = place.left() * blocks, right_tile = place.right() * blocks;
            const char *of_left = reinterpret_cast<const char *>(left) + left_tile * (2ll * LEFT);
            const char *of_right =
                reinterpret_cast<const char *>(right) + right_tile * (2ll * RIGHT) + rank * (RIGHT / 2);
            int slot = 0, parity = 1;
            for (int n = 0; n < 2 * blocks; ++n) {
                await(empty + slot, parity);
                arm(full + slot, LEFT + RIGHT);
                char *const to = slots + slot * SLOT;
                copy_to(to, of_left + n * (long long)LEFT, LEFT, full + slot, 1 << rank);
                copy_to(to + LEFT + rank * (RIGHT / 2), of_right + n * (long long)RIGHT, RIGHT / 2,
                        full + slot, 3);
                if (++slot == SLOTS) slot = 0, parity ^= 1;
            }
        }
    } else {
        take_registers();
        float sums[SUMS];
        {
            const Place place(blockIdx.x, M, N);
            sum_up(sums, slots, full, empty, rows, columns, place.left() * blocks,
                   place.right() * blocks, blocks, group);
        }
        // Where it is is found anew, as no register was left to keep it in.
        const Place place(block_again(), M, N);
        const long long z = place.z;
        const Result result{$result};
        bool hard = false;
#pragma unroll
        for (int i = 0; i < SUMS; ++i) hard |= !(fabsf(sums[i]) < __int_as_float(0x7f800000));
        if (any_of_groups(hard)) {
            const int top = place.high * HIGH, side = place.wide * BLOCK_N;
            compute_directly(result, beside, {a + $a_batch + top * a_row, M - top, K, a_row, a_depth},
                             {b + $b_batch + side * b_column, N - side, K, b_column, b_depth}, top, side);
        } else {
            const int warp = threadIdx.x / 32;
            result.put_rows(sums, beside + warp * 16 * PITCH, place.high * HIGH + warp * 16,
                            place.wide * BLOCK_N);
        }
    }
    leave_cluster();
}
