// Matrix times vector: a block reads ROWS rows in 16-byte pieces, each once, and the vector once.
$header
#include <$include>

using Element = $element;
using Written = $written;
constexpr int PIECE = 16 / sizeof(Element);

__device__ __forceinline__ float wide(Element value) { return $wide; }

// sum plus the products of the elements of two pieces.
__device__ __forceinline__ float with_products(const uint4 &a, const uint4 &b, float sum) {
    const Element *left = reinterpret_cast<const Element *>(&a);
    const Element *right = reinterpret_cast<const Element *>(&b);
#pragma unroll
    for (int i = 0; i < PIECE; ++i) sum = fmaf(wide(left[i]), wide(right[i]), sum);
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
strips(const uint4 *__restrict__ matrix, const uint4 *__restrict__ vector,
       Written *__restrict__ out, long long rows, long long pieces) {
    __shared__ float parts[ROWS][THREADS / 32];
    const long long first = (long long)blockIdx.x * ROWS;
    const long long share = (pieces + gridDim.y - 1) / gridDim.y;
    const long long begin = share * blockIdx.y;
    const long long end = begin + share < pieces ? begin + share : pieces;
    const uint4 *row[ROWS];
    float sums[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        // Past the last row the last one is read again, and not written.
        row[r] = matrix + (first + r < rows ? first + r : rows - 1) * pieces;
        sums[r] = 0;
    }
#pragma unroll UNROLL
    for (long long at = begin + threadIdx.x; at < end; at += THREADS) {
        const uint4 factors = __ldg(vector + at);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) sums[r] = with_products(__ldcs(row[r] + at), factors, sums[r]);
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
        for (int step = 16; step; step /= 2) sums[r] += __shfl_xor_sync(0xffffffffu, sums[r], step);
        if (threadIdx.x % 32 == 0) parts[r][threadIdx.x / 32] = sums[r];
    }
    __syncthreads();
    if (threadIdx.x < ROWS && first + threadIdx.x < rows) {
        float sum = 0;
        for (int warp = 0; warp < THREADS / 32; ++warp) sum += parts[threadIdx.x][warp];
        out[blockIdx.y * rows + first + threadIdx.x] = Written(sum);
    }
}
$second
