// Softmax of long fp32 rows: a cluster of blocks a row, each with its part of the row in its shared
// memory, the maximum and the sum exchanged through distributed shared memory.
// /// kopt
// entry = "cluster_softmax"
// requires = ["x.shape[1] >= BLOCKS"]
// [knobs]
// BLOCKS = [4, 2, 8]
// THREADS = [512, 1024]
// [[launch]]
// grid = ["x.shape[0] * BLOCKS"]
// block = ["THREADS"]
// cluster = ["BLOCKS"]
// shared = "cdiv(x.shape[1], BLOCKS) * 4"
// arguments = ["x", "out", "x.shape[1]"]
// ///
#include <cmath>
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

// Works for rows of at least BLOCKS elements, as long as a cluster's shared memory holds one.
__device__ float within_block(float value, bool maximum, float *parts) {
    for (int step = 16; step; step /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, value, step);
        value = maximum ? fmaxf(value, other) : value + other;
    }
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
    for (int warp = 1; warp < THREADS / 32; ++warp)
        value = maximum ? fmaxf(value, parts[warp]) : value + parts[warp];
    __syncthreads();
    return value;
}

__device__ float within_cluster(float value, bool maximum, float *own, float *parts) {
    cg::cluster_group cluster = cg::this_cluster();
    value = within_block(value, maximum, parts);
    if (threadIdx.x == 0) *own = value;
    cluster.sync();
    for (int rank = 0; rank < BLOCKS; ++rank) {
        const float other = *cluster.map_shared_rank(own, rank);
        value = rank == 0 ? other : maximum ? fmaxf(value, other) : value + other;
    }
    return value;
}

extern "C" __global__ void __launch_bounds__(THREADS)
cluster_softmax(const float *__restrict__ x, float *__restrict__ out, long long columns) {
    extern __shared__ float part[];
    __shared__ float parts[THREADS / 32], own_most, own_sum;
    const long long each = (columns + BLOCKS - 1) / BLOCKS;
    const long long start = (blockIdx.x % BLOCKS) * each;
    const int count = int(min(each, max(columns - start, 0ll)));
    const long long first = (blockIdx.x / BLOCKS) * columns + start;

    float most = -INFINITY;
    for (int i = threadIdx.x; i < count; i += THREADS) {
        part[i] = x[first + i];
        most = fmaxf(most, part[i]);
    }
    most = within_cluster(most, true, &own_most, parts);
    float sum = 0;
    for (int i = threadIdx.x; i < count; i += THREADS) {
        part[i] = __expf(part[i] - most);
        sum += part[i];
    }
    sum = within_cluster(sum, false, &own_sum, parts);
    for (int i = threadIdx.x; i < count; i += THREADS) out[first + i] = part[i] / sum;
    cg::this_cluster().sync();  // nobody leaves while others still read its shared memory
}
