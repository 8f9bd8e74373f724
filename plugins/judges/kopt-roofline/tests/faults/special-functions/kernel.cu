// A sum of 64 exponentials of each element: the pipe of special functions gives 16 a cycle.
// /// kopt
// entry = "exponentials"
// requires = ["x.numel % 1024 == 0"]
// flags = ["--ftz=true"]
// [[launch]]
// grid = ["x.numel // 1024"]
// block = [256]
// arguments = ["x", "out"]
// ///
extern "C" __global__ void __launch_bounds__(256)
exponentials(const float4 *__restrict__ x, float4 *__restrict__ out) {
    const unsigned at = blockIdx.x * 256 + threadIdx.x;
    const float4 by = x[at];
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 16
    for (int step = 1; step <= 64; ++step) {
        const float factor = step / 32.0f;
        sum.x += __expf(by.x * factor);
        sum.y += __expf(by.y * factor);
        sum.z += __expf(by.z * factor);
        sum.w += __expf(by.w * factor);
    }
    out[at] = sum;
}
