// RMSNorm of fp16 rows: one block a row, 128-bit loads, the row kept in registers.
// /// kopt
// entry = "rms_norm"
// requires = ["x.shape[1] % 8 == 0", "x.shape[1] <= 8 * VECTORS * THREADS"]
// [knobs]
// THREADS = [512, 256, 1024]
// VECTORS = [2, 1, 4, 8]
// [[launch]]
// grid = ["x.shape[0]"]
// block = ["THREADS"]
// arguments = ["x", "weight", "out", "x.shape[1]", 1e-6]
// ///
#include <cuda_fp16.h>

// Holds rows of up to 8 * VECTORS * THREADS elements, a multiple of 8 long.
extern "C" __global__ void __launch_bounds__(THREADS)
rms_norm(const __half *__restrict__ x, const __half *__restrict__ weight, __half *__restrict__ out,
         int columns, float epsilon) {
    __shared__ float parts[THREADS / 32];
    const uint4 *row = reinterpret_cast<const uint4 *>(x + size_t(blockIdx.x) * columns);
    const uint4 *weights = reinterpret_cast<const uint4 *>(weight);
    uint4 *result = reinterpret_cast<uint4 *>(out + size_t(blockIdx.x) * columns);
    const int vectors = columns / 8;
    uint4 loaded[VECTORS];
    float sum = 0;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        const int at = i * THREADS + threadIdx.x;
        if (at >= vectors) break;
        loaded[i] = __ldcs(row + at);
        const __half2 *pairs = reinterpret_cast<const __half2 *>(&loaded[i]);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float2 pair = __half22float2(pairs[j]);
            sum += pair.x * pair.x + pair.y * pair.y;
        }
    }
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int warp = 0; warp < THREADS / 32; ++warp) sum += parts[warp];
    const float scale = rsqrtf(sum / columns + epsilon);
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        const int at = i * THREADS + threadIdx.x;
        if (at >= vectors) break;
        const uint4 factors = __ldg(weights + at);
        const __half2 *pairs = reinterpret_cast<const __half2 *>(&loaded[i]);
        const __half2 *factor = reinterpret_cast<const __half2 *>(&factors);
        uint4 stored;
        __half2 *made = reinterpret_cast<__half2 *>(&stored);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float2 pair = __half22float2(pairs[j]), by = __half22float2(factor[j]);
            made[j] = __floats2half2_rn(pair.x * scale * by.x, pair.y * scale * by.y);
        }
        __stcs(result + at, stored);
    }
}
