// The first 1024 terms of the geometric series by Horner's rule, 16 elements a thread. A block fills
// a multiprocessor with long arithmetic, and there are 136 blocks for 132 multiprocessors: the last
// four take as long as all the others.
// /// kopt
// entry = "series"
// requires = ["x.numel % 16384 == 0"]
// [[launch]]
// grid = ["x.numel // 16384"]
// block = [1024]
// arguments = ["x", "out"]
// ///
extern "C" __global__ void __launch_bounds__(1024, 1)
series(const float4 *__restrict__ x, float4 *__restrict__ out) {
    const size_t first = size_t(blockIdx.x) * 4096 + threadIdx.x;
    float4 by[4], sum[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        by[i] = x[first + i * 1024];
        sum[i] = make_float4(1, 1, 1, 1);
    }
#pragma unroll 4
    for (int term = 1; term < 1024; ++term) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            sum[i].x = sum[i].x * by[i].x + 1;
            sum[i].y = sum[i].y * by[i].y + 1;
            sum[i].z = sum[i].z * by[i].z + 1;
            sum[i].w = sum[i].w * by[i].w + 1;
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) out[first + i * 1024] = sum[i];
}
