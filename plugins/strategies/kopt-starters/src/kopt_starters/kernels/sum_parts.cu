
// The parts of every row's sum, added up by a warp in the same order each time.
extern "C" __global__ void __launch_bounds__(128)
add_parts(const float *__restrict__ partial, Element *__restrict__ out, long long rows,
          int parts) {
    const long long row = blockIdx.x * 4ll + threadIdx.y;
    if (row >= rows) return;
    float sum = 0;
    for (int part = threadIdx.x; part < parts; part += 32) sum += partial[row * parts + part];
#pragma unroll
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x == 0) out[row] = Element(sum);
}
