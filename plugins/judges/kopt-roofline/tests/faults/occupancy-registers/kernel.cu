// Sums along the second axis, less their mean along the first, a thread a column. All 192 sums of it
// wait in registers for the mean: 8 warps fit on a multiprocessor, with one load under way in each.
// /// kopt
// entry = "centered_sums"
// requires = ["x.shape[2] % 256 == 0"]
// [[launch]]
// grid = ["x.shape[2] // 256"]
// block = [256]
// arguments = ["x", "out", "x.shape[2]"]
// ///
extern "C" __global__ void __launch_bounds__(256, 1)
centered_sums(const float *__restrict__ x, float *__restrict__ out, int n) {
    const float *at = x + blockIdx.x * 256 + threadIdx.x;
    float sums[192], total = 0;
#pragma unroll
    for (int i = 0; i < 192; ++i) {
        float sum = 0;
#pragma unroll 1
        for (int j = 0; j < 4; ++j, at += n) sum += *at;
        sums[i] = sum;
        total += sum;
    }
    const float mean = total / 192;
    float *to = out + blockIdx.x * 256 + threadIdx.x;
#pragma unroll
    for (int i = 0; i < 192; ++i) to[size_t(i) * n] = sums[i] - mean;
}
