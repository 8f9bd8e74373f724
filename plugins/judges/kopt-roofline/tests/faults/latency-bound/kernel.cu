// Rows at the ends of chains of 64 links, a warp a chain: each load has to wait for the one before, and
// all warps together ask for too little to keep the L2 cache busy.
// /// kopt
// entry = "follow"
// requires = ["start.numel % 8 == 0", "x.shape[1] == 32"]
// [[launch]]
// grid = ["start.numel // 8"]
// block = [256]
// arguments = ["links", "start", "x", "out"]
// ///
extern "C" __global__ void __launch_bounds__(256)
follow(const int *__restrict__ links, const int *__restrict__ start, const float *__restrict__ x,
       float *__restrict__ out) {
    const size_t chain = size_t(blockIdx.x) * 8 + threadIdx.x / 32;
    int row = start[chain];
    for (int link = 0; link < 64; ++link) row = __ldcg(links + row);
    out[chain * 32 + threadIdx.x % 32] = x[size_t(row) * 32 + threadIdx.x % 32];
}
