using namespace nvcuda;

template <bool FIRST, class One, class Other> struct Choice { using Type = One; };
template <class One, class Other> struct Choice<false, One, Other> { using Type = Other; };

// The tile of a warp, in tensor cores' fragments.
struct Sums {
    static constexpr int HIGH = WARP_M / 16, WIDE = WARP_N / 16, PITCH = WARP_N + 4;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[HIGH][WIDE];
    int first_row, first_column;

    __device__ __forceinline__ Sums(int row, int column) : first_row(row), first_column(column) {
#pragma unroll
        for (int i = 0; i < HIGH; ++i)
#pragma unroll
            for (int j = 0; j < WIDE; ++j) wmma::fill_fragment(sums[i][j], 0.0f);
    }

    __device__ __forceinline__ void add(const Element *left, const Element *right) {
        using LeftLayout = typename Choice<LEFT_DEEP, wmma::row_major, wmma::col_major>::Type;
        using RightLayout = typename Choice<RIGHT_DEEP, wmma::col_major, wmma::row_major>::Type;
#pragma unroll
        for (int k = 0; k < BLOCK_K; k += 16) {
            wmma::fragment<wmma::matrix_b, 16, 16, 16, Element, RightLayout> b[WIDE];
#pragma unroll
            for (int j = 0; j < WIDE; ++j) {
                const int n = first_column + j * 16;
                const int at = RIGHT_DEEP ? n * Right::PITCH + k : k * Right::PITCH + n;
                wmma::load_matrix_sync(b[j], right + at, Right::PITCH);
            }
#pragma unroll
            for (int i = 0; i < HIGH; ++i) {
                const int m = first_row + i * 16;
                const int at = LEFT_DEEP ? m * Left::PITCH + k : k * Left::PITCH + m;
                wmma::fragment<wmma::matrix_a, 16, 16, 16, Element, LeftLayout> a;
                wmma::load_matrix_sync(a, left + at, Left::PITCH);
#pragma unroll
                for (int j = 0; j < WIDE; ++j) wmma::mma_sync(sums[i][j], a, b[j], sums[i][j]);
            }
        }
    }

    // Fragments go through a strip of shared memory, so that whole rows are written.
    __device__ __forceinline__ void write(const Result &to, int row, int column, float *memory) {
        float *strip = memory + threadIdx.x / 32 * 16 * PITCH;
#pragma unroll
        for (int i = 0; i < HIGH; ++i) {
#pragma unroll
            for (int j = 0; j < WIDE; ++j)
                wmma::store_matrix_sync(strip + j * 16, sums[i][j], PITCH, wmma::mem_row_major);
            __syncwarp();
#pragma unroll
            for (int at = threadIdx.x % 32; at < 2 * WARP_N; at += 32) {
                const int down = at / (WARP_N / 8), across = at % (WARP_N / 8) * 8;
                float values[8];
#pragma unroll
                for (int k = 0; k < 8; ++k) values[k] = strip[down * PITCH + across + k];
                to.put(values, row + first_row + i * 16 + down, column + first_column + across);
            }
            __syncwarp();
        }
    }
};
