
extern "C" __global__ void __launch_bounds__(THREADS)
turn$number(const Memory *__restrict__ x, const Memory *__restrict__ cosine,
      const Memory *__restrict__ sine, Memory *__restrict__ out, unsigned rows$parameters) {
    const unsigned index = blockIdx.x * THREADS + threadIdx.x, row = index / SHARES;
    if (row >= rows) return;
    const Element *cosines = reinterpret_cast<const Element *>(cosine) + $cosine;
    const Element *sines = reinterpret_cast<const Element *>(sine) + $sine;
    const size_t first = size_t(row) * ROW;
    turn<$places>(x + first, cosines, sines, out + first, index % SHARES * EACH);
}
