// Sums of rows: LANES threads share a row, or its part where PARTS blocks have one each.
// /// kopt
// requires = $requires
// $knobs
$plan
// ///
$pieces

using Written = $written;
$shared_rows

extern "C" __global__ void __launch_bounds__(LANES * ROWS)
add_rows(const Memory *__restrict__ x, Written *__restrict__ to, long long rows,
         long long pieces) {
    const long long row = (long long)blockIdx.x * ROWS + threadIdx.y;
    const long long share = (pieces + gridDim.y - 1) / gridDim.y, begin = share * blockIdx.y;
    const long long stop = begin + share < pieces ? begin + share : pieces;
    const long long end = row < rows ? stop : 0;
    Values sums = {};
#pragma unroll UNROLL
    for (long long at = begin + threadIdx.x; at < end; at += LANES) {
        const Values values = widened(__ldcs(x + row * pieces + at));
#pragma unroll
        for (int j = 0; j < PIECE; ++j) sums.at[j] += values.at[j];
    }
    float sum = 0;
#pragma unroll
    for (int j = 0; j < PIECE; ++j) sum += sums.at[j];
    sum = row_sum(sum);
    if (threadIdx.x == 0 && row < rows) to[row * gridDim.y + blockIdx.y] = Written(sum);
}
$second
