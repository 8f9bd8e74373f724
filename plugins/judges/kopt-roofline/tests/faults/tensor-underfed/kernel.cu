// A product of half-precision matrices on tensor cores, a block of 4 warps a tile of 64 x 64. Each step
// of 16 loads its operands, waits for them, and only then multiplies: nothing is fetched ahead.
// /// kopt
// entry = "product"
// requires = ["a.shape[0] % 64 == 0", "a.shape[1] % 16 == 0", "b.shape[1] % 64 == 0"]
// [[launch]]
// grid = ["b.shape[1] // 64", "a.shape[0] // 64"]
// block = [128]
// arguments = ["a", "b", "out", "b.shape[1]", "a.shape[1]"]
// ///
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

extern "C" __global__ void __launch_bounds__(128)
product(const __half *__restrict__ a, const __half *__restrict__ b, __half *__restrict__ out, int n,
        int k) {
    __shared__ __align__(16) __half left[64][24], right[16][72];
    const int thread = threadIdx.x, down = thread / 64 * 32, across = thread / 32 % 2 * 32;
    const int row = blockIdx.y * 64, column = blockIdx.x * 64;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[2][2];
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) wmma::fill_fragment(sums[i][j], 0.0f);
#pragma unroll 1
    for (int at = 0; at < k; at += 16) {
        *reinterpret_cast<uint4 *>(&left[thread / 2][thread % 2 * 8]) =
            *reinterpret_cast<const uint4 *>(a + size_t(row + thread / 2) * k + at + thread % 2 * 8);
        *reinterpret_cast<uint4 *>(&right[thread / 8][thread % 8 * 8]) =
            *reinterpret_cast<const uint4 *>(b + size_t(at + thread / 8) * n + column + thread % 8 * 8);
        __syncthreads();
        wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> l[2];
        wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> r[2];
        for (int i = 0; i < 2; ++i) {
            wmma::load_matrix_sync(l[i], &left[down + 16 * i][0], 24);
            wmma::load_matrix_sync(r[i], &right[0][across + 16 * i], 72);
        }
        for (int i = 0; i < 2; ++i)
            for (int j = 0; j < 2; ++j) wmma::mma_sync(sums[i][j], l[i], r[j], sums[i][j]);
        __syncthreads();
    }
    for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) {
            wmma::fragment<wmma::accumulator, 16, 16, 16, __half> rounded;
            for (int e = 0; e < rounded.num_elements; ++e)
                rounded.x[e] = __float2half(sums[i][j].x[e]);
            __half *to = out + size_t(row + down + 16 * i) * n + column + across + 16 * j;
            wmma::store_matrix_sync(to, rounded, n, wmma::mem_row_major);
        }
    }
}
