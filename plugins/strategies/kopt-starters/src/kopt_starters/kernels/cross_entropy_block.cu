    __shared__ float2 found[ROWS];
    if (threadIdx.x == 0) found[threadIdx.y] = make_float2(loss, end ? 1.0f : 0.0f);
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        float2 all = found[0];
        for (int each = 1; each < ROWS; ++each) {
            all.x += found[each].x;
            all.y += found[each].y;
        }
        to[blockIdx.x] = all;
    }
}

__device__ __forceinline__ float2 warp_sums(float2 value) {
#pragma unroll
    for (int step = 16; step; step /= 2) {
        value.x += __shfl_xor_sync(0xffffffffu, value.x, step);
        value.y += __shfl_xor_sync(0xffffffffu, value.y, step);
    }
    return value;
}

// What the blocks found, added up by one block in the same order each time.
extern "C" __global__ void __launch_bounds__(1024)
reduce(const float2 *__restrict__ partial, Element *__restrict__ out, int blocks) {
    __shared__ float2 parts[32];
    float2 all = make_float2(0, 0);
#pragma unroll 8
    for (int block = threadIdx.x; block < blocks; block += 1024) {
        const float2 found = __ldg(partial + block);
        all.x += found.x;
        all.y += found.y;
    }
    all = warp_sums(all);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = all;
    __syncthreads();
    all = warp_sums(parts[threadIdx.x % 32]);
    if (threadIdx.x == 0) out[0] = Element($reduced);
