// Softmax of rows of 65536, a block a row, in three passes over global memory: maximum, sum, result. The
// rows that are under way (528 of 256 KiB) are more than the L2 cache holds, so each pass reads DRAM.
// /// kopt
// entry = "softmax"
// requires = ["x.shape[1] % 4 == 0"]
// [[launch]]
// grid = ["x.shape[0]"]
// block = [512]
// arguments = ["x", "out", "x.shape[1] // 4"]
// ///
#include <cmath>

template <bool MAXIMUM> __device__ float reduced(float value) {
    __shared__ float parts[16];
    for (int step = 16; step; step /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, value, step);
        value = MAXIMUM ? fmaxf(value, other) : value + other;
    }
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
    for (int warp = 1; warp < 16; ++warp)
        value = MAXIMUM ? fmaxf(value, parts[warp]) : value + parts[warp];
    return value;
}

extern "C" __global__ void __launch_bounds__(512, 4)
softmax(const float4 *__restrict__ x, float4 *__restrict__ out, int width) {
    const float4 *row = x + size_t(blockIdx.x) * width;
    float4 *result = out + size_t(blockIdx.x) * width;
    float most = -INFINITY, sum = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < width; i += 512) {
        const float4 v = row[i];
        most = fmaxf(most, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
    }
    most = reduced<true>(most);
#pragma unroll 4
    for (int i = threadIdx.x; i < width; i += 512) {
        const float4 v = row[i];
        sum += (__expf(v.x - most) + __expf(v.y - most)) + (__expf(v.z - most) + __expf(v.w - most));
    }
    const float scale = 1 / reduced<false>(sum);
#pragma unroll 4
    for (int i = threadIdx.x; i < width; i += 512) {
        float4 v = row[i];
        v.x = __expf(v.x - most) * scale;
        v.y = __expf(v.y - most) * scale;
        v.z = __expf(v.z - most) * scale;
        v.w = __expf(v.w - most) * scale;
        __stcs(result + i, v);
    }
}
