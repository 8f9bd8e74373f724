// A vector times two: one 128-bit load and store a thread. The control: nothing is wrong with it.
// /// kopt
// entry = "scale"
// requires = ["x.numel % 1024 == 0"]
// [[launch]]
// grid = ["x.numel // 1024"]
// block = [256]
// arguments = ["x", "out"]
// ///
extern "C" __global__ void scale(const float4 *__restrict__ x, float4 *__restrict__ out) {
    const unsigned at = blockIdx.x * 256 + threadIdx.x;
    float4 v = __ldcs(x + at);
    v.x *= 2;
    v.y *= 2;
    v.z *= 2;
    v.w *= 2;
    __stcs(out + at, v);
}
