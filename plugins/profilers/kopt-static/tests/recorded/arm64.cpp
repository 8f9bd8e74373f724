extern "C" void scale(const float* x, float* out, long n) {
    for (long i = 0; i < n; ++i) out[i] = 2 * x[i] + 1;
}
extern "C" double chain(const double* x, long n) {
    double total = 0;
    for (long i = 0; i < n; ++i) total = total * x[i] + 1.5;
    return total;
}
extern "C" long count(const long* x, long n, long at) {
    return n ? x[at] * n : 7;
}
typedef float four __attribute__((vector_size(16)));
extern "C" void move(const four* x, four* out) { *out = *x; }
