// A product of half-precision matrices on the FP32 pipe: tiles of 128 x 128 in shared memory, 8 x 8 of
// them a thread, where tensor cores would do.
// /// kopt
// entry = "product"
// requires = ["a.shape[0] % 128 == 0", "a.shape[1] % 16 == 0", "b.shape[1] % 128 == 0"]
// [[launch]]
// grid = ["b.shape[1] // 128", "a.shape[0] // 128"]
// block = [256]
// arguments = ["a", "b", "out", "b.shape[1]", "a.shape[1]"]
// ///
#include <cuda_fp16.h>

__device__ void widened(const uint4 loaded, float (&values)[8]) {
    const __half2 *pairs = reinterpret_cast<const __half2 *>(&loaded);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float2 pair = __half22float2(pairs[i]);
        values[2 * i] = pair.x;
        values[2 * i + 1] = pair.y;
    }
}

extern "C" __global__ void __launch_bounds__(256, 2)
product(const __half *__restrict__ a, const __half *__restrict__ b, __half *__restrict__ out, int n,
        int k) {
    __shared__ float left[16][128], right[16][128];
    const int row = blockIdx.y * 128, column = blockIdx.x * 128;
    const int down = threadIdx.x / 16, across = threadIdx.x % 16;
    float sums[8][8] = {};
    for (int at = 0; at < k; at += 16) {
        float values[8];
        const int r = threadIdx.x / 2, half = threadIdx.x % 2 * 8;
        widened(*reinterpret_cast<const uint4 *>(a + size_t(row + r) * k + at + half), values);
#pragma unroll
        for (int i = 0; i < 8; ++i) left[half + i][r ^ 2 * half] = values[i];
        widened(*reinterpret_cast<const uint4 *>(b + size_t(at + down) * n + column + across * 8),
                values);
        float4 *to = reinterpret_cast<float4 *>(&right[down][across * 8]);
        to[0] = make_float4(values[0], values[1], values[2], values[3]);
        to[1] = make_float4(values[4], values[5], values[6], values[7]);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const float4 *l = reinterpret_cast<const float4 *>(left[i]);
            const float4 *r4 = reinterpret_cast<const float4 *>(right[i]);
            const int swapped = down ^ (i < 8 ? 0 : 4);  // the second half of a row's 16 lies swapped
            const float4 l0 = l[swapped], l1 = l[swapped + 16];
            const float4 r0 = r4[across], r1 = r4[across + 16];
            const float ls[8] = {l0.x, l0.y, l0.z, l0.w, l1.x, l1.y, l1.z, l1.w};
            const float rs[8] = {r0.x, r0.y, r0.z, r0.w, r1.x, r1.y, r1.z, r1.w};
#pragma unroll
            for (int y = 0; y < 8; ++y)
#pragma unroll
                for (int x = 0; x < 8; ++x) sums[y][x] += ls[y] * rs[x];
        }
        __syncthreads();
    }
#pragma unroll
    for (int y = 0; y < 8; ++y) {
        __half *to = out + size_t(row + down * 4 + y % 4 + y / 4 * 64) * n + column + across * 4;
#pragma unroll
        for (int x = 0; x < 8; x += 4) {
            const __half2 pairs[2] = {__floats2half2_rn(sums[y][x], sums[y][x + 1]),
                                      __floats2half2_rn(sums[y][x + 2], sums[y][x + 3])};
            *reinterpret_cast<uint2 *>(to + x * 16) = *reinterpret_cast<const uint2 *>(pairs);
        }
    }
}
