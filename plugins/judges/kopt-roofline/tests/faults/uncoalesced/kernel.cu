// A matrix transposed element by element: writes are coalesced, and the 32 threads of a warp read 32
// rows, 2 bytes of each 32-byte sector.
// /// kopt
// entry = "transpose"
// requires = ["x.shape[0] % 256 == 0"]
// [[launch]]
// grid = ["x.shape[0] // 256", "x.shape[1]"]
// block = [256]
// arguments = ["x", "out", "x.shape[0]", "x.shape[1]"]
// ///
#include <cuda_fp16.h>

extern "C" __global__ void
transpose(const __half *__restrict__ x, __half *__restrict__ out, int rows, int columns) {
    const int row = blockIdx.x * 256 + threadIdx.x, column = blockIdx.y;
    out[size_t(column) * rows + row] = x[size_t(row) * columns + column];
}
