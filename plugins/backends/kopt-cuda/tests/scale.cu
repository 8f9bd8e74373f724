// /// kopt
// entry = "scale"
// [knobs]
// BLOCK = [128, 256]
// [[launch]]
// kernel = "scale"
// grid = ["cdiv(x.numel, BLOCK)"]
// block = ["BLOCK"]
// arguments = ["x", "out", "x.numel", "2.0"]
// ///
extern "C" __global__ void scale(const float *x, float *out, int n, float by) {
    int at = blockIdx.x * BLOCK + threadIdx.x;
    if (at < n) out[at] = by * x[at];
}
