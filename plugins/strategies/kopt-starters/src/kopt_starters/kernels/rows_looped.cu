// $operator of long rows: a block sweeps over a row twice; KEPT pieces of it wait in shared memory.
// /// kopt
// requires = $requires
// $knobs
// [[launch]]
// kernel = "$operator"
// grid = ["$rows"]
// block = ["THREADS"]
// shared = "KEPT * $piece_bytes"
// arguments = [$tensors, "out", "$count // $piece", "$eps"]
// ///
$pieces

constexpr int LANES = THREADS, ROWS = 1;
$shared_rows

$running

$result

extern "C" __global__ void __launch_bounds__(THREADS)
$operator(const Memory *__restrict__ x, $parameters Memory *__restrict__ out, int pieces,
    float eps) {
    extern __shared__ uint4 memory[];
    Memory *kept = reinterpret_cast<Memory *>(memory);
    const long long first = (long long)blockIdx.x * pieces;
    Running seen;
#pragma unroll UNROLL
    for (int at = threadIdx.x; at < pieces; at += THREADS) {
        const Memory loaded = __ldg(x + first + at);
        if (at < KEPT) kept[at] = loaded;
        include(seen, widened(loaded));
    }
    const Result result(of_row(seen), eps);
    for (int start = threadIdx.x; start < pieces; start += UNROLL * THREADS) {
        Memory loaded[UNROLL];  // all of them are asked for before the first is used
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) {
            const int at = start + i * THREADS;
            if (at < pieces) loaded[i] = at < KEPT ? kept[at] : __ldcs(x + first + at);
        }
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) {
            const int at = start + i * THREADS;
            if (at >= pieces) break;
            Values values = widened(loaded[i]);
            $read_affine
#pragma unroll
            for (int j = 0; j < PIECE; ++j) values.at[j] = result(values.at[j])$affine;
            __stcs(out + first + at, narrowed(values));
        }
    }
}
