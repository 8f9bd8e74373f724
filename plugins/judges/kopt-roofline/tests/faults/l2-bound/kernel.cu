// The sum of 64 rotations of the rows of a matrix that the L2 cache holds: every element is read 64
// times from there, coalesced, past the L1 cache.
// /// kopt
// entry = "rotations"
// requires = ["x.shape[1] % 1024 == 0", "x.shape[0] > 61"]
// [[launch]]
// grid = ["x.shape[1] // 1024", "x.shape[0]"]
// block = [256]
// arguments = ["x", "out", "x.shape[0]", "x.shape[1] // 4"]
// ///
extern "C" __global__ void __launch_bounds__(256)
rotations(const float4 *__restrict__ x, float4 *__restrict__ out, int rows, int width) {
    const int column = blockIdx.x * 256 + threadIdx.x;
    int row = blockIdx.y;
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (int shift = 0; shift < 64; ++shift) {
        const float4 v = __ldcg(x + size_t(row) * width + column);
        row += 61;
        if (row >= rows) row -= rows;
        sum.x += v.x;
        sum.y += v.y;
        sum.z += v.z;
        sum.w += v.w;
    }
    out[size_t(blockIdx.y) * width + column] = sum;
}
