// A vector times two in blocks of one warp: a multiprocessor holds 32 blocks, so half of its warps stay
// empty, and starting blocks takes longer than what they do.
// /// kopt
// entry = "scale"
// requires = ["x.numel % 32 == 0"]
// [[launch]]
// grid = ["x.numel // 32"]
// block = [32]
// arguments = ["x", "out"]
// ///
extern "C" __global__ void scale(const float *__restrict__ x, float *__restrict__ out) {
    const unsigned at = blockIdx.x * 32 + threadIdx.x;
    out[at] = x[at] * 2;
}
