// 16 steps in which each row of 1024 moves half of the way to mean zero. In each of them the first warp
// adds up the row, and the block's 31 others wait for it at a barrier.
// /// kopt
// entry = "settle"
// requires = ["x.shape[1] == 1024"]
// [[launch]]
// grid = ["x.shape[0]"]
// block = [1024]
// arguments = ["x", "out"]
// ///
extern "C" __global__ void __launch_bounds__(1024, 2)
settle(const float *__restrict__ x, float *__restrict__ out) {
    __shared__ float row[1024], half_mean;
    const size_t at = size_t(blockIdx.x) * 1024 + threadIdx.x;
    float value = x[at];
#pragma unroll 1
    for (int step = 0; step < 16; ++step) {
        row[threadIdx.x] = value;
        __syncthreads();
        if (threadIdx.x < 32) {
            float sum = 0;
#pragma unroll 4
            for (int i = 0; i < 32; ++i) sum += row[i * 32 + threadIdx.x];
            for (int lane = 16; lane; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
            if (threadIdx.x == 0) half_mean = sum / 2048;
        }
        __syncthreads();
        value -= half_mean;
    }
    out[at] = value;
}
