// Layer norm of rows: LANES threads share a row, which is read once and stays in their registers.
// /// kopt
// requires = $requires
// $knobs
// [[launch]]
// kernel = "layer_norm"
// grid = ["cdiv($rows, ROWS)"]
// block = ["LANES", "ROWS"]
// arguments = [$tensors, "out", "$rows", "$count // $piece", "$eps"]
// ///
$pieces

$shared_rows

$stored

constexpr int MOST = $most;  // pieces of the longest row that fits
constexpr int EACH = (MOST + LANES - 1) / LANES;

extern "C" __global__ void __launch_bounds__(LANES * ROWS)
layer_norm(const Memory *__restrict__ x, $parameters Memory *__restrict__ out, long long rows,
           int pieces, float eps) {
    const long long row = (long long)blockIdx.x * ROWS + threadIdx.y;
    const long long first = row * pieces;
    const int end = row < rows ? pieces : 0;
    Memory loaded[EACH];
    float sum = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const int at = i * LANES + threadIdx.x;
        if (at < end) loaded[i] = __ldcs(x + first + at);
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        if (i * LANES + threadIdx.x >= end) continue;
        const Values values = widened(loaded[i]);
#pragma unroll
        for (int j = 0; j < PIECE; ++j) sum += values.at[j];
    }
    const float mean = row_sum(sum) / (pieces * PIECE);
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        if (i * LANES + threadIdx.x >= end) continue;
        const Values values = widened(loaded[i]);
#pragma unroll
        for (int j = 0; j < PIECE; ++j)
            squares = fmaf(values.at[j] - mean, values.at[j] - mean, squares);
    }
    const float scale = rsqrtf(row_sum(squares) / (pieces * PIECE) + eps);
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const int at = i * LANES + threadIdx.x;
        if (at >= end) continue;
        Values values = widened(loaded[i]);
        $read_affine
#pragma unroll
        for (int j = 0; j < PIECE; ++j) values.at[j] = (values.at[j] - mean) * scale$affine;
        store(out + first + at, values);
    }
}
