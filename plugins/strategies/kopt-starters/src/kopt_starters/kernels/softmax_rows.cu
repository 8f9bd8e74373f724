// Softmax of rows: LANES threads share a row, which is read once and stays in their registers.
// /// kopt
// requires = $requires
// $knobs
// [[launch]]
// kernel = "softmax"
// grid = ["cdiv($rows, ROWS)"]
// block = ["LANES", "ROWS"]
// arguments = ["$x", "out", "$rows", "$count // $piece"]
// ///
$pieces

$shared_rows

$stored

constexpr int MOST = $most;  // pieces of the longest row that fits
constexpr int EACH = (MOST + LANES - 1) / LANES;

extern "C" __global__ void __launch_bounds__(LANES * ROWS)
softmax(const Memory *__restrict__ x, Memory *__restrict__ out, long long rows, int pieces) {
    const long long row = (long long)blockIdx.x * ROWS + threadIdx.y;
    const long long first = row * pieces;
    const int end = row < rows ? pieces : 0;
    Memory loaded[EACH];
    Values values[EACH];
    float most = -INFINITY;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const int at = i * LANES + threadIdx.x;
        if (at < end) loaded[i] = __ldcs(x + first + at);
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const bool inside = i * LANES + threadIdx.x < end;
        values[i] = widened(loaded[i]);
#pragma unroll
        for (int j = 0; j < PIECE; ++j) {
            if (!inside) values[i].at[j] = -INFINITY;
            most = fmaxf(most, values[i].at[j]);
        }
    }
    most = row_maximum(most);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
#pragma unroll
        for (int j = 0; j < PIECE; ++j) {
            values[i].at[j] = expf(values[i].at[j] - most);
            sum += values[i].at[j];
        }
    }
    const float scale = 1 / row_sum(sum);
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const int at = i * LANES + threadIdx.x;
#pragma unroll
        for (int j = 0; j < PIECE; ++j) values[i].at[j] *= scale;
        if (at < end) store(out + first + at, values[i]);
    }
}
