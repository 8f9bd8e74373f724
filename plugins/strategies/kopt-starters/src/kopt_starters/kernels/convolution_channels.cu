// Convolution as a product on tensor cores, with channels first as they are: nothing is copied before.
// A block keeps the weights of its channels in shared memory and goes over tiles of BLOCK_N results
// of one row. Rows of the input come through registers, and lie in shared memory with channels last.
$header
#include <$include>
#include <cstdint>

$places

constexpr int BLOCK_M = $rows;
constexpr int TOGETHER = 4 / sizeof(Element);   // channels that are put into shared memory at once
constexpr int ROWS = KD * KH, TAPS = ROWS * KW, PITCH = CIN + PIECE;
constexpr int WIDTH = BLOCK_N * ZW, OUT_PITCH = WIDTH + PIECE;  // of a tile's results
constexpr int WARPS_N = BLOCK_N / WARP_N, THREADS = BLOCK_M / WARP_M * WARPS_N * 32;
constexpr int ACROSS = (OW + WIDTH - 1) / WIDTH, DOWN = (COUT + BLOCK_M - 1) / BLOCK_M;
constexpr int PIECES = (FIRST + (BLOCK_N - 1) * SW + REACH + PIECE) / PIECE;  // of a row
constexpr int ITEMS = PIECES * (CIN / TOGETHER), EACH = (ITEMS + THREADS - 1) / THREADS;
// Phases have to be known when it is compiled; more code than this would take more registers.
constexpr int UNROLLED = ZW > 1 || KW * CIN * int(sizeof(Element)) <= 1024 ? KW : 1;
static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0 && THREADS <= 1024);

__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], const Element *from) {
    const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(from));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at));
}

__device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
    asm volatile("mma.sync.aligned.$shape.row.col.f32.$kind.$kind.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Pixels of one row of the input, all channels, on their way to shared memory.
struct Row {
    uint4 held[EACH][TOGETHER];

    __device__ __forceinline__ void fetch(const Element *x, long long image, int plane, int row,
                                          int first) {
        const bool there = plane >= 0 && plane < D && row >= 0 && row < H;
        x += image * CIN * PLANE + ((long long)plane * H + row) * W;
#pragma unroll
        for (int n = 0; n < EACH; ++n) {
            const int item = n * THREADS + threadIdx.x;
            const int channel = item % (CIN / TOGETHER) * TOGETHER;
            const int column = first + item / (CIN / TOGETHER) * PIECE;
            const bool inside = (ITEMS % THREADS == 0 || item < ITEMS) && column >= 0 && column < W;
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) {
                held[n][i] = uint4{0, 0, 0, 0};
                if (there && inside)
                    held[n][i] =
                        *reinterpret_cast<const uint4 *>(x + (channel + i) * PLANE + column);
            }
        }
    }

    __device__ __forceinline__ void store(Element *pixels) const {
#pragma unroll
        for (int n = 0; n < EACH; ++n) {
            const int item = n * THREADS + threadIdx.x;
            if (ITEMS % THREADS && item >= ITEMS) break;
            Element *to = pixels + item / (CIN / TOGETHER) * (PIECE * PITCH) +
                          item % (CIN / TOGETHER) * TOGETHER;
            const uint4 &first = held[n][0], &last = held[n][TOGETHER - 1];
            const uint32_t a[4] = {first.x, first.y, first.z, first.w};
            const uint32_t b[4] = {last.x, last.y, last.z, last.w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (TOGETHER == 1) {
                    *reinterpret_cast<float *>(to + i * PITCH) = nearest(__uint_as_float(a[i]));
                } else {  // two pixels of two channels, turned
                    Element *two = to + 2 * i * PITCH;
                    *reinterpret_cast<uint32_t *>(two) = __byte_perm(a[i], b[i], 0x5410);
                    *reinterpret_cast<uint32_t *>(two + PITCH) = __byte_perm(a[i], b[i], 0x7632);
                }
            }
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
convolve(const uint4 *__restrict__ x_pieces, const Element *__restrict__ weight, $bias_parameter
         uint4 *__restrict__ out_pieces, long long tiles) {
    extern __shared__ __align__(128) unsigned char memory[];
    const Element *x = reinterpret_cast<const Element *>(x_pieces);
    Element *out = reinterpret_cast<Element *>(out_pieces);
    Element *taps = reinterpret_cast<Element *>(memory);  // [tap][channel out][channel in]
    Element *pixels = taps + TAPS * BLOCK_M * PITCH;      // [pixel][channel in]
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int m0 = warp / WARPS_N * WARP_M, n0 = warp % WARPS_N * WARP_N;
    const int block_m = blockIdx.x % DOWN * BLOCK_M, channels = min(BLOCK_M, COUT - block_m);
    const int step = gridDim.x / DOWN;
    for (int at = threadIdx.x; at < TAPS * BLOCK_M * CIN; at += THREADS) {
        const int tap = at % TAPS, in = at / TAPS % CIN, channel = at / (TAPS * CIN);
        const int row = block_m + channel;
        taps[(tap * BLOCK_M + channel) * PITCH + in] =
            channel < channels ? $weight : Element(0.0f);
    }
    Row pieces;
    // The next row of the input that a tile's results take something from; ROWS: there is none.
    const auto following = [&](long long of, int row) {
        const int h = int(of / ACROSS % OH) * SH + BH, d = int(of / (ACROSS * OH) % OD) * SD + BD;
        do {
            ++row;
        } while (row < ROWS && ((d + row / KH * TD) % ZD || (h + row % KH * TH) % ZH));
        return row;
    };
    const auto fetch = [&](long long of, int row) {
        const int h = int(of / ACROSS % OH) * SH + BH, d = int(of / (ACROSS * OH) % OD) * SD + BD;
        pieces.fetch(x, of / (ACROSS * OH * OD), (d + row / KH * TD) / ZD, (h + row % KH * TH) / ZH,
                     int(of % ACROSS) * (BLOCK_N * SW) + LEFT - FIRST);
    };
    const auto begin = [&](long long of) {
        const int row = of < tiles ? following(of, -1) : ROWS;
        if (row < ROWS) fetch(of, row);
        return row;
    };
    long long tile = blockIdx.x / DOWN;
    int row = begin(tile);
    while (tile < tiles) {
        float sums[ZW][WARP_M / 16][WARP_N / 8][4] = {};
        int next = -1;  // row of the next tile
        while (row < ROWS) {
            __syncthreads();  // what was there is used
            pieces.store(pixels);
            __syncthreads();
            const int now = row;
            row = following(tile, row);
            if (row < ROWS)
                fetch(tile, row);
            else
                next = begin(tile + step);
#pragma unroll UNROLLED
            for (int kw = 0; kw < KW; ++kw) {
                const Element *left =
                    taps + ((now * KW + kw) * BLOCK_M + m0 + lane % 16) * PITCH + lane / 16 * PIECE;
#pragma unroll
                for (int phase = 0; phase < ZW; ++phase) {
                    if (!SIDEWAYS.reaches(phase, kw)) continue;
                    const Element *right =
                        pixels + ((n0 + lane / 16 * 8 + lane % 8) * SW + SIDEWAYS.from(phase, kw) -
                                  LEFT + FIRST) * PITCH + lane / 8 % 2 * PIECE;
#pragma unroll
                    for (int k = 0; k < CIN; k += 2 * PIECE) {
                        uint32_t a[WARP_M / 16][4];
#pragma unroll
                        for (int i = 0; i < WARP_M / 16; ++i)
                            load_matrices(a[i], left + i * 16 * PITCH + k);
#pragma unroll
                        for (int j = 0; j < WARP_N / 16; ++j) {
                            uint32_t b[4];
                            load_matrices(b, right + j * (16 * SW) * PITCH + k);
#pragma unroll
                            for (int i = 0; i < WARP_M / 16; ++i) {
                                multiply(sums[phase][i][2 * j], a[i], b[0], b[1]);
                                multiply(sums[phase][i][2 * j + 1], a[i], b[2], b[3]);
                            }
                        }
                    }
                }
            }
        }
        if (next < 0) next = begin(tile + step);  // no row had anything
        __syncthreads();
        // Results lie as they will in memory, where a row begins anywhere in a piece: all but the first
        // and the last of a row are written a piece at a time.
        const int first = int(tile % ACROSS) * WIDTH, count = min(WIDTH, OW - first);
        const long long line = tile / ACROSS, image = line / (OH * OD);
        const long long start =
            (image * COUT + block_m) * AREA + line % (OH * OD) * OW + first;
#pragma unroll
        for (int i = 0; i < WARP_M / 16; ++i) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int channel = m0 + i * 16 + half * 8 + lane / 4;
                const float added = $added;
                Element *to = pixels + channel * OUT_PITCH + int((start + channel * AREA) % PIECE) +
                              (n0 + lane % 4 * 2) * ZW;
#pragma unroll
                for (int j = 0; j < WARP_N / 8; ++j) {
#pragma unroll
                    for (int phase = 0; phase < ZW; ++phase) {
                        const float *found = &sums[phase][i][j][2 * half];
                        to[j * 8 * ZW + phase] = Element(found[0] + added);
                        to[(j * 8 + 1) * ZW + phase] = Element(found[1] + added);
                    }
                }
            }
        }
        __syncthreads();
        constexpr int WRITES = WIDTH / PIECE + 1;
        for (int at = threadIdx.x; at < channels * WRITES; at += THREADS) {
            const int channel = at / WRITES, piece = at % WRITES * PIECE;
            const long long place = start + channel * AREA;
            const int begin = piece - int(place % PIECE);
            const Element *from = pixels + channel * OUT_PITCH + piece;
            Element *to = out + place + begin;
            if (begin >= 0 && begin + PIECE <= count) {
                *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(from);
            } else {
#pragma unroll
                for (int i = 0; i < PIECE; ++i)
                    if (begin + i >= 0 && begin + i < count) to[i] = from[i];
            }
        }
        tile += step;
        row = next;
    }
}
