// A tensor's axes reordered, 16 bytes a thread one by one: where each comes from is worked out by seven
// divisions by extents that are known at run time only. Reads and writes are coalesced.
// /// kopt
// entry = "reorder"
// requires = ["x.numel < 2000000000"]
// [[launch]]
// grid = ["cdiv(x.numel, 4096)"]
// block = [256]
// arguments = ["x", "out", "x.numel", "x.shape[0]", "x.shape[1]", "x.shape[2]", "x.shape[3]", "x.shape[4]", "x.shape[5]", "x.shape[6]", "x.shape[7]"]
// ///
extern "C" __global__ void __launch_bounds__(256)
reorder(const unsigned char *__restrict__ x, unsigned char *__restrict__ out, unsigned size, unsigned a,
        unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g, unsigned h) {
    // out has the axes f, e, d, c, b, a, g, h
#pragma unroll 1
    for (unsigned at = blockIdx.x * 256 + threadIdx.x; at < size; at += gridDim.x * 256) {
        unsigned rest = at;
        const unsigned i7 = rest % h;
        rest /= h;
        const unsigned i6 = rest % g;
        rest /= g;
        const unsigned i0 = rest % a;
        rest /= a;
        const unsigned i1 = rest % b;
        rest /= b;
        const unsigned i2 = rest % c;
        rest /= c;
        const unsigned i3 = rest % d;
        rest /= d;
        const unsigned i4 = rest % e, i5 = rest / e;
        out[at] = x[((((((i0 * b + i1) * c + i2) * d + i3) * e + i4) * f + i5) * g + i6) * h + i7];
    }
}
