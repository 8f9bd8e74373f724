// $operator of few long rows: PARTS blocks measure a row, and as many write it.
// /// kopt
// requires = $requires
// $knobs
// [scratch.measured]
// shape = ["$rows * PARTS * 3"]
// dtype = "float32"
// [[launch]]
// kernel = "measure"
// grid = ["$rows * PARTS"]
// block = ["THREADS"]
// arguments = ["$x", "measured", "$count // $piece"]
// [[launch]]
// kernel = "finish"
// grid = ["$rows * PARTS"]
// block = ["THREADS"]
// arguments = [$tensors, "measured", "out", "$count // $piece", "$eps"]
// ///
$pieces

constexpr int LANES = THREADS, ROWS = 1;
$shared_rows

$running

$result

// Of three floats each, whatever an operator measures.
constexpr int FIELDS = 3;
static_assert(sizeof(Running) <= FIELDS * sizeof(float) && PARTS <= THREADS, "");

// The pieces of a row that this block is for.
struct Share {
    long long first;
    int begin, end;
    __device__ explicit Share(int pieces) : first((long long)(blockIdx.x / PARTS) * pieces) {
        const int each = (pieces + PARTS - 1) / PARTS;
        begin = min(pieces, int(blockIdx.x % PARTS) * each);
        end = min(pieces, begin + each);
    }
};

extern "C" __global__ void __launch_bounds__(THREADS)
measure(const Memory *__restrict__ x, float *__restrict__ measured, int pieces) {
    const Share share(pieces);
    Running seen;
#pragma unroll UNROLL
    for (int at = share.begin + threadIdx.x; at < share.end; at += THREADS)
        include(seen, widened(__ldg(x + share.first + at)));
    seen = of_row(seen);
    if (threadIdx.x == 0)
        *reinterpret_cast<Running *>(measured + (long long)blockIdx.x * FIELDS) = seen;
}

extern "C" __global__ void __launch_bounds__(THREADS)
finish(const Memory *__restrict__ x, $parameters const float *__restrict__ measured,
       Memory *__restrict__ out, int pieces, float eps) {
    const Share share(pieces);
    Running seen;
    if (threadIdx.x < PARTS) {
        const long long part = (long long)(blockIdx.x / PARTS) * PARTS + threadIdx.x;
        seen = *reinterpret_cast<const Running *>(measured + part * FIELDS);
    }
    const Result result(of_row(seen), eps);
    for (int start = share.begin + threadIdx.x; start < share.end; start += UNROLL * THREADS) {
        Memory loaded[UNROLL];  // all of them are asked for before the first is used
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) {
            const int at = start + i * THREADS;
            if (at < share.end) loaded[i] = __ldcs(x + share.first + at);
        }
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) {
            const int at = start + i * THREADS;
            if (at >= share.end) break;
            Values values = widened(loaded[i]);
            $read_affine
#pragma unroll
            for (int j = 0; j < PIECE; ++j) values.at[j] = result(values.at[j])$affine;
            __stcs(out + share.first + at, narrowed(values));
        }
    }
}
