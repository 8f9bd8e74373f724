// Rows of 32, each less its mean. Global memory is read and written coalesced through shared memory;
// there each thread walks along its own row, so that all 32 threads of a warp want the same bank.
// /// kopt
// entry = "center"
// requires = ["x.shape[0] % 256 == 0"]
// [[launch]]
// grid = ["x.shape[0] // 256"]
// block = [256]
// arguments = ["x", "out"]
// ///
extern "C" __global__ void __launch_bounds__(256)
center(const float *__restrict__ x, float *__restrict__ out) {
    __shared__ float tile[256][32];
    const size_t first = size_t(blockIdx.x) * 256;
    const int row = threadIdx.x / 32, column = threadIdx.x % 32;
#pragma unroll 8
    for (int i = 0; i < 256; i += 8) tile[row + i][column] = x[(first + row + i) * 32 + column];
    __syncthreads();
    float sum = 0;
#pragma unroll 4
    for (int i = 0; i < 32; ++i) sum += tile[threadIdx.x][i];
    const float mean = sum / 32;
#pragma unroll 4
    for (int i = 0; i < 32; ++i) tile[threadIdx.x][i] -= mean;
    __syncthreads();
#pragma unroll 8
    for (int i = 0; i < 256; i += 8) out[(first + row + i) * 32 + column] = tile[row + i][column];
}
