// Convolution as a product on Hopper's tensor cores, with channels first as they are: nothing is
// copied before. A block keeps the weights of its channels in shared memory; each of its warpgroups
// goes down strips of the result on its own. It holds the rows of the input that one row of the result
// needs, and adds one for each further row: [16 bytes of channels][pixel], so that eight pixels from
// any one on are one of the matrices that wgmma reads without swizzling.
$header
#include <$include>
#include <cstdint>

$places

constexpr int BLOCK_N = $rows;
constexpr int CHUNKS = CIN / PIECE, TAPS = KD * KH * KW, DOWN = (COUT + BLOCK_N - 1) / BLOCK_N;
constexpr int TOP = DOWNWARD.end(false), BEFORE = DOWNWARD.end(true) - TOP;
// What is written at once begins at multiples of ALIGN bytes. Rows of the result begin anywhere: a
// strip has so many more results than it writes, for all but the ends of a row to be written so.
constexpr int EDGE = ALIGN / sizeof(Element), WIDTH = PIXELS * ZW;
constexpr int EXTRA = AREA % EDGE == 0 && OW % EDGE == 0 ? 0 : EDGE;
constexpr int UNIT = ZW % 2 ? ZW * EDGE : ZW * PIECE, WRITTEN = (WIDTH - EXTRA) / UNIT * UNIT;
constexpr int ACROSS = (OW + WRITTEN - 1) / WRITTEN, LINES_ALL = (OH + ZH - 1) / ZH;
constexpr int PARTS = (LINES_ALL + LINES - 1) / LINES, SLOTS = BEFORE + 2;  // rows that are kept
// Pixels that are S apart lie side by side: [pixel % S][pixel / S].
constexpr int SIDE = PIXELS + REACH / SW + 1, PITCH = SW * SIDE / 2 * 2 + 1;
constexpr int SPAN = (PIXELS - 1) * SW + REACH + 1;
constexpr int PIECES = (FIRST + SPAN + PIECE - 1) / PIECE;
constexpr int ITEMS = KD * CHUNKS * PIECES, EACH = (ITEMS + 127) / 128;
constexpr int SLOT = KD * CHUNKS * PITCH * PIECE;  // elements
// Of results on their way out, which have EDGE before them: an odd number of pieces.
constexpr int OUT_PITCH = ((WIDTH + EDGE) / PIECE / 2 * 2 + 1) * PIECE;
static_assert(WRITTEN > 0 && WRITTEN / ZW * SW % PIECE == 0 && WRITTEN <= 32 * PIECE && PIXELS % 8 == 0);
static_assert(SH == 1 && (SW == 1 || ZW == 1));

// What wgmma is told about an operand: where its first matrix of 8 rows of 16 bytes is, and how many
// bytes lie between two of them in depth; those of further rows follow each other.
__device__ __forceinline__ uint64_t described(const Element *first, uint32_t apart) {
    const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(first));
    return (at & 0x3ffff) >> 4 | uint64_t(apart >> 4) << 16 | uint64_t(128 >> 4) << 32;
}

constexpr int SUMS = $columns / 2;  // that a thread has of a product of 64 rows

// Add the product of 64 rows over a depth of 32 bytes; or let it be the sum.
__device__ __forceinline__ void multiply_group(float (&c)[SUMS], const Element *left,
                                               uint32_t left_apart, const Element *right,
                                               uint32_t right_apart, int added) {
    const uint64_t a = described(left, left_apart), b = described(right, right_apart);
$products
}

$wgmma

// What a thread has written into shared memory is there for wgmma after the next barrier.
__device__ __forceinline__ void show_to_products() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void group_barrier() {
    asm volatile("bar.sync %0, 128;" ::"r"(int(threadIdx.x / 128) + 1) : "memory");
}

// A row of a strip: which image, depth and columns, and which row of those that it needs.
struct Place {
    unsigned strip;
    int row, rows;

    __device__ __forceinline__ unsigned line() const { return strip / ACROSS; }
    __device__ __forceinline__ int column() const { return strip % ACROSS * WRITTEN; }
    __device__ __forceinline__ int height() const { return line() % PARTS * LINES; }
    __device__ __forceinline__ int depth() const { return line() / PARTS % OD; }
    __device__ __forceinline__ unsigned image() const { return line() / (PARTS * OD); }
    __device__ __forceinline__ void enter(unsigned at) {
        strip = at, row = 0, rows = min(LINES, LINES_ALL - height()) + BEFORE;
    }
    __device__ __forceinline__ void advance(unsigned step) {
        if (++row == rows) enter(strip + step);
    }
};

__device__ __forceinline__ uint32_t rounded(uint32_t bits) {
    return __float_as_uint(nearest(__uint_as_float(bits)));
}

// Pixels of a row in all planes of the kernel, all channels, on their way to shared memory.
struct Row {
    uint4 held[EACH][PIECE];

    __device__ __forceinline__ static int piece(int item) { return item % PIECES; }
    __device__ __forceinline__ static int line(int item) { return item / PIECES; }  // [plane][chunk]

    __device__ __forceinline__ void fetch(const Element *x, const Place &place, int thread) {
        const int h = place.height() + TOP + place.row, d = place.depth() * SD + BD;
        const int first = place.column() / ZW * SW + LEFT - FIRST;
        x += place.image() * (CIN * PLANE) + (long long)h * W;
#pragma unroll
        for (int n = 0; n < EACH; ++n) {
            const int item = n * 128 + thread, column = first + piece(item) * PIECE;
            const int channel = (KD == 1 ? line(item) : line(item) % CHUNKS) * PIECE;
            const int spread = KD == 1 ? d : d + line(item) / CHUNKS * TD;
            const int z = spread % ZD ? -1 : spread / ZD;
            const bool there = (ITEMS % 128 == 0 || item < ITEMS) && column >= 0 && column < W &&
                               h >= 0 && h < H && z >= 0 && z < D;
            const Element *from = x + channel * PLANE + (long long)z * (H * W) + column;
#pragma unroll
            for (int i = 0; i < PIECE; ++i) {
                held[n][i] = uint4{0, 0, 0, 0};
                if (there) held[n][i] = __ldg(reinterpret_cast<const uint4 *>(from + i * PLANE));
            }
        }
    }

    // Threads that are side by side write pixels i ^ thread of their pieces: to different banks.
    __device__ __forceinline__ void store(Element *slot, int thread) {
        const int turn = thread % PIECE;
#pragma unroll
        for (int n = 0; n < EACH; ++n) {
            const int item = n * 128 + thread;
            if (ITEMS % 128 && item >= ITEMS) break;
            uint4 *const to = reinterpret_cast<uint4 *>(slot) + line(item) * PITCH;
            uint32_t words[PIECE][4];  // of channels
#pragma unroll
            for (int i = 0; i < PIECE; ++i) {
                const uint4 &of = held[n][i];
                const bool one = turn / (PIECE / 4) % 2, two = turn / (PIECE / 2);
                const uint32_t a = one ? of.y : of.x, b = one ? of.x : of.y;
                const uint32_t c = one ? of.w : of.z, d = one ? of.z : of.w;
                words[i][0] = two ? c : a, words[i][1] = two ? d : b;
                words[i][2] = two ? a : c, words[i][3] = two ? b : d;
            }
#pragma unroll
            for (int i = 0; i < PIECE; ++i) {
                uint32_t turned[4];
                const uint32_t half = (i ^ turn) % 2 ? 0x7632 : 0x5410;
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    turned[j] = PIECE == 4 ? rounded(words[j][i % 4])
                                           : __byte_perm(words[2 * j % PIECE][i / 2],
                                                         words[(2 * j + 1) % PIECE][i / 2], half);
                const int pixel = piece(item) * PIECE + (i ^ turn) - FIRST;
                if (pixel >= 0 && pixel < SPAN)
                    to[pixel % SW * SIDE + pixel / SW] =
                        uint4{turned[0], turned[1], turned[2], turned[3]};
            }
        }
    }
};

// What is less than EDGE at the beginning, and less than a piece at the end of a row.
template <int TEAM>
__device__ __noinline__ void write_ends(Element *out, const Element *staged, int channels, bool begins,
                                        int count, unsigned missing, int thread) {
    for (int at = thread / EDGE; at < channels; at += TEAM / EDGE) {
        const int i = thread % EDGE, before = (missing - at * unsigned(AREA % EDGE)) % EDGE;
        const int end = before + (count - before) / PIECE * PIECE;
        Element *to = out + at * AREA;
        const Element *from = staged + at * OUT_PITCH + EDGE - before;
        if (begins && i < min(before, count)) to[i] = from[i];
        if (end < before + WRITTEN && end + i < count && count >= before) to[end + i] = from[end + i];
    }
}

// Where a row of results begins, and how many there are of them.
struct Line {
    long long start;
    int count;
    bool begins;

    __device__ __forceinline__ Line(const Place &of, int phase, int channel) {
        const int first = of.column(), h = (of.height() + of.row - BEFORE) * ZH + phase;
        start = (of.image() * COUT + channel) * AREA + ((long long)of.depth() * OH + h) * OW + first;
        count = min(WIDTH, OW - first), begins = first == 0;
    }

    // Of a channel: how many results there are before the first that is written at once.
    __device__ __forceinline__ int before(int channel) const {
        return -(unsigned(start) + channel * unsigned(AREA % EDGE)) % EDGE;
    }

    // Where result 0 of a channel is put on its way out, so that pieces are whole there too.
    __device__ __forceinline__ int place(int at, int channel) const {
        return at * OUT_PITCH + EDGE - before(channel);
    }

    // TEAM threads write ROWS channels that are on their way out.
    template <int TEAM, int ROWS>
    __device__ __forceinline__ void write(Element *out, const Element *staged, int channel,
                                          int channels, int thread) const {
        constexpr int LANES = WRITTEN > 16 * PIECE ? 32 : WRITTEN > 8 * PIECE ? 16 : 8;
        constexpr int AT_ONCE = TEAM / LANES, ROUNDS = (ROWS + AT_ONCE - 1) / AT_ONCE;
        const int mine = channel + thread / LANES, piece = thread % LANES * PIECE;
        const Element *from = staged + thread / LANES * OUT_PITCH + EDGE + piece;
        Element *const to = out + start + mine * AREA + piece;
        uint4 found[ROUNDS];
#pragma unroll
        for (int n = 0; n < ROUNDS; ++n)
            if (piece < WRITTEN && (ROWS % AT_ONCE == 0 || n * AT_ONCE + thread / LANES < ROWS))
                found[n] = *reinterpret_cast<const uint4 *>(from + n * AT_ONCE * OUT_PITCH);
#pragma unroll
        for (int n = 0; n < ROUNDS; ++n) {
            const int first = before(mine + n * AT_ONCE);
            const bool there = (ROWS % AT_ONCE == 0 || n * AT_ONCE + thread / LANES < ROWS) &&
                               (COUT % BLOCK_N == 0 || mine + n * AT_ONCE < channels);
            if (there && piece < WRITTEN && piece + first + PIECE <= count)
                __stcg(reinterpret_cast<uint4 *>(to + n * AT_ONCE * AREA + first), found[n]);
        }
        if (begins || count < WIDTH)
            write_ends<TEAM>(out + start + channel * AREA, staged, min(ROWS, channels - channel), begins,
                             count, before(channel), thread);
    }
};

$results

extern "C" __global__ void __launch_bounds__(128 * WARPGROUPS, 1)
convolve(const uint4 *__restrict__ x_pieces, const Element *__restrict__ weight, $bias_parameter
         uint4 *__restrict__ out_pieces, int strips) {
    extern __shared__ __align__(128) unsigned char memory[];
    const Element *x = reinterpret_cast<const Element *>(x_pieces);
    Element *out = reinterpret_cast<Element *>(out_pieces);
    Element *const taps = reinterpret_cast<Element *>(memory);  // [tap][16 bytes of depth][channel]
    // The same in a warp, as the compiler sees: products in branches that differ are not overlapped.
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    const int thread = threadIdx.x % 128;
    Element *const rows = taps + TAPS * BLOCK_N * CIN + group * (SLOTS * SLOT + Results::STAGE);
    Element *const stage = rows + SLOTS * SLOT;
    const int block_n = blockIdx.x % DOWN * BLOCK_N, channels = min(BLOCK_N, COUT - block_n);
    const int step = gridDim.x / DOWN * WARPGROUPS;
#pragma unroll 4
    for (int at = threadIdx.x; at < TAPS * BLOCK_N * CIN; at += 128 * WARPGROUPS) {
        const int tap = at % TAPS, in = at / TAPS % CIN, channel = at / (TAPS * CIN);
        const int row = block_n + channel;
        taps[((tap * CHUNKS + in / PIECE) * BLOCK_N + channel) * PIECE + in % PIECE] =
            channel < channels ? $weight : Element(0.0f);
    }
    show_to_products();
    __syncthreads();
    // A row is multiplied while the next one is stored, and the one after that is on its way.
    Row pieces;
    Place place, coming;
    int slot = 0;  // of the row that is at hand
    place.enter(blockIdx.x / DOWN * WARPGROUPS + group);
    coming = place;
    if (place.strip >= strips) return;
    pieces.fetch(x, coming, thread);
    pieces.store(rows, thread);
    coming.advance(step);
    if (coming.strip < strips) pieces.fetch(x, coming, thread);
    while (place.strip < strips) {
        const int oldest = slot + SLOTS - BEFORE;
        show_to_products();
        group_barrier();
        for (int phase = 0; phase < ZH; ++phase) {
            Results results;
            const bool complete =
                place.row >= BEFORE &&
                (OH % ZH == 0 || (place.height() + place.row - BEFORE) * ZH + phase < OH);
            int seen = 0;  // rows that were multiplied
            if (complete) {
                begin_products();
                for (int kh = 0; kh < KH; ++kh) {
                    if (!DOWNWARD.reaches(phase, kh)) continue;
                    const Element *line =
                        rows + (oldest + DOWNWARD.from(phase, kh) - TOP) % SLOTS * SLOT;
#pragma unroll
                    for (int kd = 0; kd < KD; ++kd) {
                        const Element *weights = taps + (kd * KH + kh) * KW * BLOCK_N * CIN;
                        results.add(line + kd * CHUNKS * PITCH * PIECE, weights, seen + kd);
                    }
                    ++seen;
                }
                commit_products();
            }
            if (phase == 0) {
                slot = slot + 1 == SLOTS ? 0 : slot + 1;
                if (coming.strip < strips) {
                    pieces.store(rows + slot * SLOT, thread);
                    coming.advance(step);
                    if (coming.strip < strips) pieces.fetch(x, coming, thread);
                }
            }
            if (complete) {
                await_products();
                results.hold_all();
                if (ZH > 1 && !seen) results.clear();
                results.write(out, stage, Line(place, phase, block_n), channels, $bias thread);
            }
        }
        place.advance(step);
    }
}
