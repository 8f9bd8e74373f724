// A block has ROWS rows of LANES threads, a power of two. Returned in all of a row's threads: the
// sum, or the maximum, of what they hold. All threads of a block have to come here.
template <bool MAXIMUM> __device__ __forceinline__ float over_row(float value) {
    constexpr int WARPS = (LANES + 31) / 32;
    const auto combined = [](float a, float b) { return MAXIMUM ? fmaxf(a, b) : a + b; };
#pragma unroll
    for (int step = LANES / WARPS / 2; step; step /= 2)
        value = combined(value, __shfl_xor_sync(0xffffffffu, value, step));
    if constexpr (WARPS > 1) {
        __shared__ float parts[ROWS][WARPS];
        __syncthreads();  // parts may still be read for the reduction before
        if (threadIdx.x % 32 == 0) parts[threadIdx.y][threadIdx.x / 32] = value;
        __syncthreads();
        value = parts[threadIdx.y][threadIdx.x % WARPS];
#pragma unroll
        for (int step = WARPS / 2; step; step /= 2)
            value = combined(value, __shfl_xor_sync(0xffffffffu, value, step));
    }
    return value;
}

__device__ __forceinline__ float row_sum(float value) { return over_row<false>(value); }
__device__ __forceinline__ float row_maximum(float value) { return over_row<true>(value); }
