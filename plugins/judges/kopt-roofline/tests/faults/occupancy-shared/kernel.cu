// Rows of 49152, each less its mean, a block of 128 threads a row. The row waits in shared memory for
// its mean, so one block fits on a multiprocessor: 4 warps, with one load under way in each.
// /// kopt
// entry = "center"
// requires = ["x.shape[1] <= 57344", "x.shape[1] % 128 == 0"]
// [[launch]]
// grid = ["x.shape[0]"]
// block = [128]
// shared = "x.shape[1] * 4"
// arguments = ["x", "out", "x.shape[1]"]
// ///
extern "C" __global__ void __launch_bounds__(128)
center(const float *__restrict__ x, float *__restrict__ out, int columns) {
    extern __shared__ float row[];
    __shared__ float parts[4];
    const size_t first = size_t(blockIdx.x) * columns;
    float sum = 0;
#pragma unroll 1
    for (int i = threadIdx.x; i < columns; i += 128) {
        const float value = x[first + i];
        row[i] = value;
        sum += value;
    }
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    const float mean = (parts[0] + parts[1] + parts[2] + parts[3]) / columns;
    for (int i = threadIdx.x; i < columns; i += 128) out[first + i] = row[i] - mean;
}
