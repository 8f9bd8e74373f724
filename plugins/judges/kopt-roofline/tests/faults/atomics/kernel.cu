// How often each of eight values occurs: every element is an atomic addition to one of eight addresses.
// /// kopt
// [[launch]]
// kernel = "clear"
// grid = [1]
// block = [8]
// arguments = ["out"]
// [[launch]]
// kernel = "count"
// grid = ["cdiv(x.numel, 1024)"]
// block = [256]
// arguments = ["x", "out", "x.numel"]
// ///
extern "C" __global__ void clear(long long *out) { out[threadIdx.x] = 0; }

extern "C" __global__ void __launch_bounds__(256)
count(const int *__restrict__ x, long long *__restrict__ out, long long n) {
    unsigned long long *bins = reinterpret_cast<unsigned long long *>(out);
    const long long first = blockIdx.x * 1024ll + threadIdx.x;
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (first + 256 * i < n) atomicAdd(bins + x[first + 256 * i], 1ull);
}
