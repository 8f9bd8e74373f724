// The sum of 8 rotations of the rows of a matrix larger than the L2 cache, row by row: by the time a
// row is wanted again, 130 MB of others have passed, so each of 8 reads comes from DRAM.
// /// kopt
// entry = "rotations"
// requires = ["x.shape[1] % 1024 == 0", "x.shape[0] > 4001"]
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
#pragma unroll
    for (int shift = 0; shift < 8; ++shift) {
        const float4 v = x[size_t(row) * width + column];
        row += 4001;
        if (row >= rows) row -= rows;
        sum.x += v.x;
        sum.y += v.y;
        sum.z += v.z;
        sum.w += v.w;
    }
    __stcs(out + size_t(blockIdx.y) * width + column, sum);
}
