// The first 512 terms of the geometric series where a flag is set, for one element in 16: nearly every
// warp has one that is, and its other threads wait.
// /// kopt
// entry = "flagged"
// requires = ["x.numel % 256 == 0"]
// [[launch]]
// grid = ["x.numel // 256"]
// block = [256]
// arguments = ["x", "flag", "out"]
// ///
extern "C" __global__ void __launch_bounds__(256)
flagged(const float *__restrict__ x, const bool *__restrict__ flag, float *__restrict__ out) {
    const unsigned at = blockIdx.x * 256 + threadIdx.x;
    const float by = x[at];
    float value = by;
    if (flag[at]) {
        value = 1;
#pragma unroll 16
        for (int term = 1; term < 512; ++term) value = value * by + 1;
    }
    out[at] = value;
}
