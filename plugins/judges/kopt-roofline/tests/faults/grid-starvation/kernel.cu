// Sums of long rows, one block a row: 8 rows keep 8 multiprocessors busy.
// /// kopt
// entry = "row_sum"
// requires = ["x.shape[1] % 16384 == 0"]
// [[launch]]
// grid = ["x.shape[0]"]
// block = [1024]
// arguments = ["x", "out", "x.shape[1]"]
// ///
extern "C" __global__ void __launch_bounds__(1024)
row_sum(const float *__restrict__ x, float *__restrict__ out, int columns) {
    __shared__ float parts[32];
    const float4 *row = reinterpret_cast<const float4 *>(x + size_t(blockIdx.x) * columns);
    float sums[4] = {};
    for (int at = threadIdx.x; at < columns / 4; at += 4 * 1024) {
        float4 loaded[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) loaded[i] = __ldcs(row + at + i * 1024);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            sums[i] += (loaded[i].x + loaded[i].y) + (loaded[i].z + loaded[i].w);
    }
    float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < 32; ++warp) sum += parts[warp];
        out[blockIdx.x] = sum;
    }
}
