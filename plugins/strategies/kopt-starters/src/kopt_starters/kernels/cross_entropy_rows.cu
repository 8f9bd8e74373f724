// Cross-entropy of rows of logits: each is read once, with a running maximum and sum per thread.
// /// kopt
// requires = $requires
// $knobs
$plan
// ///
$pieces

$shared_rows

$running

using Written = $written;
constexpr long long IGNORED = $ignored;  // rows of this class have no loss, and are not read

extern "C" __global__ void __launch_bounds__(LANES * ROWS)
losses(const Memory *__restrict__ x, const long long *__restrict__ target,
       Written *__restrict__ to, long long rows, int pieces) {
    const long long row = (long long)blockIdx.x * ROWS + threadIdx.y;
    const long long label = row < rows ? target[row] : IGNORED;
    const Memory *from = x + row * pieces;
    const int end = label != IGNORED ? pieces : 0;
    Running seen;
#pragma unroll UNROLL
    for (int at = threadIdx.x; at < end; at += LANES) include(seen, widened(__ldcs(from + at)));
    seen = of_row(seen);
    float loss = 0;
    if (threadIdx.x == 0 && end) {
        const bool known = label >= 0 && label < (long long)pieces * PIECE;
        const float picked = known ? wide(reinterpret_cast<const Element *>(from)[label]) : NAN;
        // log_softmax of the label's class, with the sign of a loss.
        loss = logf(seen.sum) - (picked - seen.most);
    }
$ending
}
