// Softmax of fp16 rows: one block a row, 128-bit loads, the row kept in registers.
// /// kopt
// entry = "softmax"
// requires = ["x.shape[1] % 8 == 0", "x.shape[1] <= 8 * VECTORS * THREADS"]
// [knobs]
// THREADS = [512, 256, 1024]
// VECTORS = [2, 1, 4, 8]
// [[launch]]
// grid = ["x.shape[0]"]
// block = ["THREADS"]
// arguments = ["x", "out", "x.shape[1]"]
// ///
#include <cmath>
#include <cuda_fp16.h>

// Holds rows of up to 8 * VECTORS * THREADS elements, a multiple of 8 long.
constexpr int WARPS = THREADS / 32;

template <bool MAXIMUM> __device__ float reduced(float value) {
    __shared__ float parts[WARPS];
    for (int step = 16; step; step /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, value, step);
        value = MAXIMUM ? fmaxf(value, other) : value + other;
    }
    __syncthreads();  // parts may still be read by the reduction before
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
    for (int warp = 1; warp < WARPS; ++warp)
        value = MAXIMUM ? fmaxf(value, parts[warp]) : value + parts[warp];
    return value;
}

extern "C" __global__ void __launch_bounds__(THREADS)
softmax(const __half *__restrict__ x, __half *__restrict__ out, int columns) {
    const uint4 *row = reinterpret_cast<const uint4 *>(x + size_t(blockIdx.x) * columns);
    uint4 *result = reinterpret_cast<uint4 *>(out + size_t(blockIdx.x) * columns);
    const int vectors = columns / 8;
    float values[VECTORS][8];
    float most = -INFINITY;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        const int at = i * THREADS + threadIdx.x;
        if (at >= vectors) break;
        const uint4 loaded = __ldcs(row + at);
        const __half2 *pairs = reinterpret_cast<const __half2 *>(&loaded);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float2 pair = __half22float2(pairs[j]);
            values[i][2 * j] = pair.x;
            values[i][2 * j + 1] = pair.y;
            most = fmaxf(most, fmaxf(pair.x, pair.y));
        }
    }
    most = reduced<true>(most);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        if (i * THREADS + threadIdx.x >= vectors) break;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            values[i][j] = __expf(values[i][j] - most);
            sum += values[i][j];
        }
    }
    const float scale = 1 / reduced<false>(sum);
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        const int at = i * THREADS + threadIdx.x;
        if (at >= vectors) break;
        uint4 stored;
        __half2 *pairs = reinterpret_cast<__half2 *>(&stored);
#pragma unroll
        for (int j = 0; j < 4; ++j)
            pairs[j] = __floats2half2_rn(values[i][2 * j] * scale, values[i][2 * j + 1] * scale);
        __stcs(result + at, stored);
    }
}
