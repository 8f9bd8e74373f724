// Matrix product: a block has a tile of the result, and tiles of both operands come ahead of time
// into a ring of shared memory. They lie there as in memory, rows a little further apart.
$header
#include <cuda_pipeline.h>
$includes

using Element = $element;
constexpr int WARPS_N = BLOCK_N / WARP_N, WARPS = BLOCK_M / WARP_M * WARPS_N, THREADS = 32 * WARPS;
constexpr int PIECE = 16 / sizeof(Element);
// Whether an operand lies in memory along the depth, and how many elements are copied at a time.
constexpr bool LEFT_DEEP = $left_deep, RIGHT_DEEP = $right_deep;
constexpr int LEFT_PIECE = $left_piece, RIGHT_PIECE = $right_piece;
// Whether there is much to add up, where sums are float32.
constexpr bool LONG = $long;
// Whether the result takes 16 bytes at a time.
constexpr bool ALIGNED = $aligned;

__device__ __forceinline__ float wide(Element value) { return $wide; }

template <int ROWS_, int COLUMNS_> struct Tile {
    static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, PITCH = COLUMNS + PIECE;
    static constexpr int SIZE = ROWS * PITCH;
};
using Left = Tile<LEFT_DEEP ? BLOCK_M : BLOCK_K, LEFT_DEEP ? BLOCK_K : BLOCK_M>;
using Right = Tile<RIGHT_DEEP ? BLOCK_N : BLOCK_K, RIGHT_DEEP ? BLOCK_K : BLOCK_N>;

// The part of a tile that begins at from, from where the matrix has rows and columns left.
template <class Tile, int COUNT>
__device__ __forceinline__ void fetch(Element *to, const Element *from, long long row_stride,
                                      long long column_stride, int rows, int columns) {
    constexpr int ACROSS = Tile::COLUMNS / COUNT, PIECES = Tile::ROWS * ACROSS;
    constexpr int BYTES = COUNT * sizeof(Element);
    // Pieces too small to be copied asynchronously wait in registers: not all of them at once.
    constexpr int UNROLLED = BYTES < 4 ? 4 : (PIECES + THREADS - 1) / THREADS;
#pragma unroll UNROLLED
    for (int first = 0; first < PIECES; first += THREADS) {
        const int at = first + threadIdx.x, row = at / ACROSS, column = at % ACROSS * COUNT;
        if (PIECES % THREADS && at >= PIECES) break;
        Element *place = to + row * Tile::PITCH + column;
        const Element *source = from + row * row_stride + column * (COUNT > 1 ? 1 : column_stride);
        if (row >= rows || column >= columns) {
#pragma unroll
            for (int i = 0; i < COUNT; ++i) place[i] = Element(0.0f);
        } else if constexpr (BYTES < 4) {
            *place = *source;
        } else {
            __pipeline_memcpy_async(place, source, BYTES);
        }
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
    template <int COUNT>
    __device__ __forceinline__ void put(const float (&values)[COUNT], int row, int column) const {
        if (row >= M || column >= N) return;
        Element *place = out + row * o_row + column;
        if constexpr (ALIGNED && COUNT == PIECE) {
            alignas(16) Element found[COUNT];
#pragma unroll
            for (int i = 0; i < COUNT; ++i)
                found[i] = Element(finished(values[i], row, column + i));
            *reinterpret_cast<uint4 *>(place) = *reinterpret_cast<const uint4 *>(found);
        } else {
#pragma unroll
            for (int i = 0; i < COUNT; ++i)
                if (column + i < N) place[i] = Element(finished(values[i], row, column + i));
        }
    }
};

$sums

extern "C" __global__ void __launch_bounds__(THREADS)
tiles(const $left_type *__restrict__ a_pieces, const $right_type *__restrict__ b_pieces,
      $parameters) {
    extern __shared__ __align__(128) unsigned char memory[];
    Element *ring = reinterpret_cast<Element *>(memory);
    const int down = (M + BLOCK_M - 1) / BLOCK_M, across = (N + BLOCK_N - 1) / BLOCK_N;
    const long long z = blockIdx.x / (down * across);
    // Columns of GROUP tiles follow each other: what their blocks read meets in the L2 cache.
    const int tile = blockIdx.x % (down * across), first = tile / (GROUP * across) * GROUP;
    const int high = min(GROUP, down - first), within = tile % (GROUP * across);
    const int row = (first + within % high) * BLOCK_M, column = within / high * BLOCK_N;
    const Element *a = reinterpret_cast<const Element *>(a_pieces) + $a_batch + row * a_row;
    const Element *b = reinterpret_cast<const Element *>(b_pieces) + $b_batch + column * b_column;
    const auto ahead = [&](int step) {
        Element *left = ring + step % STAGES * (Left::SIZE + Right::SIZE), *right = left + Left::SIZE;
        const int k = step * BLOCK_K;
        if constexpr (LEFT_DEEP)
            fetch<Left, LEFT_PIECE>(left, a + k * a_depth, a_row, a_depth, M - row, K - k);
        else
            fetch<Left, LEFT_PIECE>(left, a + k * a_depth, a_depth, a_row, K - k, M - row);
        if constexpr (RIGHT_DEEP)
            fetch<Right, RIGHT_PIECE>(right, b + k * b_depth, b_column, b_depth, N - column, K - k);
        else
            fetch<Right, RIGHT_PIECE>(right, b + k * b_depth, b_depth, b_column, K - k, N - column);
    };
    const int steps = (K + BLOCK_K - 1) / BLOCK_K, warp = threadIdx.x / 32;
    Sums sums(warp / WARPS_N * WARP_M, warp % WARPS_N * WARP_N);
#pragma unroll
    for (int step = 0; step < STAGES - 1; ++step) {
        if (step < steps) ahead(step);
        __pipeline_commit();
    }
    for (int step = 0; step < steps; ++step) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();  // the tile is there for all, and the one before it is read
        if (step + STAGES - 1 < steps) ahead(step + STAGES - 1);
        __pipeline_commit();
        const Element *left = ring + step % STAGES * (Left::SIZE + Right::SIZE);
        sums.add(left, left + Left::SIZE);
    }
    __syncthreads();
    const Result result{$result

};
    sums.write(result, row, column, reinterpret_cast<float *>(memory));
}
