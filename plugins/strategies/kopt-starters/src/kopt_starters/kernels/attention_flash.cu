// Attention in one pass: a warp has WARP_M rows of the queries in tensor cores' fragments, scores
// and weights of BLOCK_N keys at a time in shared memory, and a running maximum and sum for each row.
$header
#include <cmath>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>
using namespace nvcuda;

using Element = $element;
constexpr int HEAD = $head;
constexpr bool CAUSAL = $causal;
constexpr float POWER = float($scale * 1.4426950408889634);  // of 2, for a score of one
constexpr int THREADS = 32 * WARPS, BLOCK_M = WARP_M * WARPS, TILES = WARP_M / 16;
constexpr int PITCH = HEAD + 8, TILE = BLOCK_N * PITCH;  // of queries, keys and values
constexpr int SCORES = BLOCK_N + 4;                      // between rows of scores
constexpr int LANES = 32 / WARP_M;                       // that share a row of scores

using Sums = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

// ROWS rows, from where the tensor has that many left; zeros else.
template <int ROWS>
__device__ __forceinline__ void fetch(Element *to, const uint4 *from, long long rows) {
    constexpr int ACROSS = HEAD / 8, PIECES = ROWS * ACROSS;
#pragma unroll
    for (int first = 0; first < PIECES; first += THREADS) {
        const int at = first + threadIdx.x;
        if (PIECES % THREADS && at >= PIECES) break;
        uint4 *place = reinterpret_cast<uint4 *>(to + at / ACROSS * PITCH + at % ACROSS * 8);
        if (at / ACROSS < rows)
            __pipeline_memcpy_async(place, from + at, 16);
        else
            *place = uint4{0, 0, 0, 0};
    }
}

// Scores of a warp's rows with BLOCK_N keys.
__device__ __forceinline__ void score(
    float *scores,
    const wmma::fragment<wmma::matrix_a, 16, 16, 16, Element, wmma::row_major> (&q)[TILES][HEAD / 16],
    const Element *keys) {
#pragma unroll
    for (int j = 0; j < BLOCK_N / 16; ++j) {
        Sums sums[TILES];
#pragma unroll
        for (int i = 0; i < TILES; ++i) wmma::fill_fragment(sums[i], 0.0f);
#pragma unroll
        for (int d = 0; d < HEAD / 16; ++d) {
            wmma::fragment<wmma::matrix_b, 16, 16, 16, Element, wmma::col_major> k;
            wmma::load_matrix_sync(k, keys + j * 16 * PITCH + d * 16, PITCH);
#pragma unroll
            for (int i = 0; i < TILES; ++i) wmma::mma_sync(sums[i], q[i][d], k, sums[i]);
        }
#pragma unroll
        for (int i = 0; i < TILES; ++i)
            wmma::store_matrix_sync(scores + i * 16 * SCORES + j * 16, sums[i], SCORES,
                                    wmma::mem_row_major);
    }
    __syncwarp();
}

struct Row {
    float most = -INFINITY, sum = 0;

    // Weights in place of scores; returns what the sums before fade by. Where MASKED, only the first
    // limit scores count.
    template <bool MASKED>
    __device__ __forceinline__ float soften(float *scores, int part, int limit) {
        const float4 *from = reinterpret_cast<const float4 *>(scores);
        float larger = most;
#pragma unroll
        for (int at = part; at < BLOCK_N / 4; at += LANES) {
            const float4 four = from[at];
            const float values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (!MASKED || at * 4 + i < limit) larger = fmaxf(larger, values[i]);
        }
        if (LANES == 2) larger = fmaxf(larger, __shfl_xor_sync(0xffffffffu, larger, 16));
        float added = 0;
#pragma unroll
        for (int at = part; at < BLOCK_N / 4; at += LANES) {
            const float4 four = from[at];
            const float values[4] = {four.x, four.y, four.z, four.w};
            alignas(8) Element weights[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float weight = exp2f((values[i] - larger) * POWER);
                if (MASKED && at * 4 + i >= limit) weight = 0;
                added += weight;
                weights[i] = Element(weight);
            }
            __syncwarp();  // both lanes of a row have read what is written over
            reinterpret_cast<uint2 *>(scores)[at] = *reinterpret_cast<const uint2 *>(weights);
        }
        if (LANES == 2) added += __shfl_xor_sync(0xffffffffu, added, 16);
        const float fading = exp2f((most - larger) * POWER);
        sum = sum * fading + added;
        most = larger;
        return fading;
    }
};

// Multiplies every row of the sums; row_of says which row an element of a fragment is of.
__device__ __forceinline__ void scale_rows(Sums (&sums)[TILES][HEAD / 16], const float *factors,
                                           const int (&row_of)[Sums::num_elements]) {
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
        float mine[Sums::num_elements];
#pragma unroll
        for (int e = 0; e < Sums::num_elements; ++e) mine[e] = factors[i * 16 + row_of[e]];
#pragma unroll
        for (int d = 0; d < HEAD / 16; ++d)
#pragma unroll
            for (int e = 0; e < Sums::num_elements; ++e) sums[i][d].x[e] *= mine[e];
    }
}

__device__ __forceinline__ void add_values(Sums (&sums)[TILES][HEAD / 16], const Element *weights,
                                           const Element *values) {
#pragma unroll
    for (int j = 0; j < BLOCK_N / 16; ++j) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, Element, wmma::row_major> p[TILES];
#pragma unroll
        for (int i = 0; i < TILES; ++i)
            wmma::load_matrix_sync(p[i], weights + i * 16 * 2 * SCORES + j * 16, 2 * SCORES);
#pragma unroll
        for (int d = 0; d < HEAD / 16; ++d) {
            wmma::fragment<wmma::matrix_b, 16, 16, 16, Element, wmma::row_major> v;
            wmma::load_matrix_sync(v, values + j * 16 * PITCH + d * 16, PITCH);
#pragma unroll
            for (int i = 0; i < TILES; ++i) wmma::mma_sync(sums[i][d], p[i], v, sums[i][d]);
        }
    }
}

// Writes a warp's rows by way of shared memory, so that each is written in pieces of 16 bytes.
__device__ __forceinline__ void write(const Sums (&sums)[TILES][HEAD / 16], float *strip,
                                      uint4 *out, long long rows) {
    constexpr int WIDTH = BLOCK_N < HEAD ? BLOCK_N : HEAD;
#pragma unroll
    for (int first = 0; first < HEAD; first += WIDTH) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < TILES; ++i)
#pragma unroll
            for (int d = 0; d < WIDTH / 16; ++d)
                wmma::store_matrix_sync(strip + i * 16 * SCORES + d * 16, sums[i][first / 16 + d],
                                        SCORES, wmma::mem_row_major);
        __syncwarp();
#pragma unroll
        for (int at = threadIdx.x % 32; at < WARP_M * WIDTH / 8; at += 32) {
            const int row = at / (WIDTH / 8), column = at % (WIDTH / 8) * 8;
            uint4 piece;
            Element *elements = reinterpret_cast<Element *>(&piece);
#pragma unroll
            for (int i = 0; i < 8; ++i) elements[i] = Element(strip[row * SCORES + column + i]);
            if (row < rows) out[row * (HEAD / 8) + (first + column) / 8] = piece;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
attend(const uint4 *__restrict__ q, const uint4 *__restrict__ k, const uint4 *__restrict__ v,
       uint4 *__restrict__ out, long long queries, long long keys) {
    extern __shared__ __align__(128) unsigned char memory[];
    Element *ring = reinterpret_cast<Element *>(memory);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // The queries, until they are in fragments; then each warp's scores.
    Element *ours = ring + 2 * STAGES * TILE;
    float *scores = reinterpret_cast<float *>(ours) + warp * WARP_M * SCORES;
    __shared__ float fadings[BLOCK_M];
    float *fading = fadings + warp * WARP_M;

    const long long tiles = (queries + BLOCK_M - 1) / BLOCK_M, batch = blockIdx.x / tiles;
    long long tile = blockIdx.x % tiles;
    if (CAUSAL) tile = tiles - 1 - tile;  // those with most to do begin first
    const long long first = tile * BLOCK_M, mine = first + warp * WARP_M;
    const long long stop = CAUSAL ? min(keys, first + BLOCK_M) : keys;
    const int steps = (stop + BLOCK_N - 1) / BLOCK_N;
    k += batch * keys * (HEAD / 8);
    v += batch * keys * (HEAD / 8);
    const auto ahead = [&](int step) {
        Element *to = ring + step % STAGES * 2 * TILE;
        const long long start = (long long)step * BLOCK_N;
        fetch<BLOCK_N>(to, k + start * (HEAD / 8), keys - start);
        fetch<BLOCK_N>(to + TILE, v + start * (HEAD / 8), keys - start);
    };

    fetch<BLOCK_M>(ours, q + (batch * queries + first) * (HEAD / 8), queries - first);
    __pipeline_commit();
#pragma unroll
    for (int step = 0; step < STAGES - 1; ++step) {
        if (step < steps) ahead(step);
        __pipeline_commit();
    }
    __pipeline_wait_prior(STAGES - 1);
    __syncthreads();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, Element, wmma::row_major> rows[TILES][HEAD / 16];
#pragma unroll
    for (int i = 0; i < TILES; ++i)
#pragma unroll
        for (int d = 0; d < HEAD / 16; ++d)
            wmma::load_matrix_sync(rows[i][d], ours + (warp * WARP_M + i * 16) * PITCH + d * 16, PITCH);
    __syncthreads();

    // CUDA does not say where a fragment's elements lie: a matrix of row numbers tells it.
    int row_of[Sums::num_elements];
    {
        for (int at = lane; at < 256; at += 32) scores[at / 16 * SCORES + at % 16] = at / 16;
        __syncwarp();
        Sums numbers;
        wmma::load_matrix_sync(numbers, scores, SCORES, wmma::mem_row_major);
#pragma unroll
        for (int e = 0; e < Sums::num_elements; ++e) row_of[e] = int(numbers.x[e]);
        __syncwarp();
    }
    Sums sums[TILES][HEAD / 16];
#pragma unroll
    for (int i = 0; i < TILES; ++i)
#pragma unroll
        for (int d = 0; d < HEAD / 16; ++d) wmma::fill_fragment(sums[i][d], 0.0f);

    Row row;
    const int number = lane % WARP_M, part = lane / WARP_M;
    const long long seen = CAUSAL ? min(keys, mine + number + 1) : keys;
    for (int step = 0; step < steps; ++step) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();  // the tiles are there for all, and those before them are read
        if (step + STAGES - 1 < steps) ahead(step + STAGES - 1);
        __pipeline_commit();
        const Element *theirs = ring + step % STAGES * 2 * TILE;
        const long long start = (long long)step * BLOCK_N;
        if (CAUSAL && start >= mine + WARP_M) continue;
        score(scores, rows, theirs);
        const int limit = min(seen - start, (long long)BLOCK_N);
        const bool whole = start + BLOCK_N <= (CAUSAL ? min(keys, mine + 1) : keys);
        float *row_scores = scores + number * SCORES;
        const float factor = whole ? row.soften<false>(row_scores, part, limit)
                                   : row.soften<true>(row_scores, part, limit);
        fading[number] = factor;
        const bool fades = __ballot_sync(0xffffffffu, factor != 1.0f) != 0;
        __syncwarp();
        if (fades) scale_rows(sums, fading, row_of);
        add_values(sums, reinterpret_cast<const Element *>(scores), theirs + TILE);
        __syncwarp();
    }
    fading[number] = 1 / row.sum;
    __syncwarp();
    scale_rows(sums, fading, row_of);
    write(sums, scores, out + (batch * queries + mine) * (HEAD / 8), queries - mine);
}
