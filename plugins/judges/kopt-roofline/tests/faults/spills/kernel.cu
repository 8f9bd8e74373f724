// 48 steps of smoothing along a ring of 48 elements, a thread a ring, all of it in registers: of which
// the launch bounds leave 40 a thread, so that much of the ring is stored and loaded in every step.
// /// kopt
// entry = "smooth"
// requires = ["x.shape[1] % 512 == 0"]
// [[launch]]
// grid = ["x.shape[1] // 512"]
// block = [512]
// arguments = ["x", "out", "x.shape[1]"]
// ///
extern "C" __global__ void __launch_bounds__(512, 3)
smooth(const float *__restrict__ x, float *__restrict__ out, int n) {
    const int at = blockIdx.x * 512 + threadIdx.x;
    float ring[48];
#pragma unroll
    for (int i = 0; i < 48; ++i) ring[i] = x[size_t(i) * n + at];
#pragma unroll 1
    for (int step = 0; step < 48; ++step) {
        const float last = ring[47];
#pragma unroll
        for (int i = 47; i; --i) ring[i] = 0.5f * (ring[i] + ring[i - 1]);
        ring[0] = 0.5f * (ring[0] + last);
    }
#pragma unroll
    for (int i = 0; i < 48; ++i) out[size_t(i) * n + at] = ring[i];
}
