// Pooling over two dimensions. The rows that a band of ROWS rows of results needs follow each other in
// memory: they are copied in pieces of 16 bytes, wherever rows begin. Threads go down columns, and put
// what they find over the same columns; then each result joins what lies beside each other.
$header
#include <cmath>
#include <cuda_pipeline.h>
#include <$include>

using Element = $element;
constexpr int PIECE = 16 / sizeof(Element);
$constants
constexpr int SPAN = (ROWS - 1) * SH + (KH - 1) * DH + 1;  // rows that a band needs
constexpr int REACH = (KW - 1) * DW + 1;

// NaN where one of them is.
__device__ __forceinline__ float larger_or_nan(float a, float b) {
    float found;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(a), "f"(b));
    return found;
}

__device__ __forceinline__ float wide(Element value) { return $wide; }
__device__ __forceinline__ float nothing() { return MAXIMUM ? -INFINITY : 0.0f; }
__device__ __forceinline__ float joined(float a, float b) { return MAXIMUM ? larger_or_nan(a, b) : a + b; }

// How many positions of a window count in a mean.
__device__ __forceinline__ int counted(int first, int window, int padding, int size) {
    return INCLUDE ? min(first + window, size + padding) - first
                   : min(first + window, size) - max(first, 0);
}

__device__ __forceinline__ float finished(float total, int top, int left) {
    if (MAXIMUM) return total;
    return total / (DIVISOR ? DIVISOR : counted(top, KH, PH, H) * counted(left, KW, PW, W));
}

// Put what windows hold of each column over the first rows of a band.
template <class Read> __device__ __forceinline__ void go_down(Element *band, Read &&read) {
    for (int column = threadIdx.x; column < W; column += THREADS) {
        float values[SPAN];
#pragma unroll
        for (int i = 0; i < SPAN; ++i) values[i] = read(i, column);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            float found = values[r * SH];
#pragma unroll
            for (int k = 1; k < KH; ++k) found = joined(found, values[r * SH + k * DH]);
            band[r * W + column] = Element(found);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
bands(const uint4 *__restrict__ x, Element *__restrict__ out, long long elements) {
    extern __shared__ uint4 memory[];
    const int many = (OH + ROWS - 1) / ROWS, row = blockIdx.x % many * ROWS;
    const long long image = blockIdx.x / many;
    const int top = row * SH - PH, low = max(top, 0), high = max(low, min(top + SPAN, H));
    const long long begin = (image * H + low) * W, end = (image * H + high) * W, first = begin / PIECE;
    const int pieces = int((end + PIECE - 1) / PIECE - first);
    // The last piece of all may have elements that are none.
    const int whole = int(min((long long)pieces, elements / PIECE - first));
    for (int at = threadIdx.x; at < whole; at += THREADS)
        __pipeline_memcpy_async(memory + at, x + first + at, 16);
    __pipeline_commit();
    for (long long at = (first + whole) * PIECE + threadIdx.x; at < end; at += THREADS)
        reinterpret_cast<Element *>(memory)[at - first * PIECE] = reinterpret_cast<const Element *>(x)[at];
    Element *const band = reinterpret_cast<Element *>(memory) + (begin - first * PIECE);
    __pipeline_wait_prior(0);
    __syncthreads();
    if (high - top == SPAN && low == top)
        go_down(band, [&](int i, int column) { return wide(band[i * W + column]); });
    else
        go_down(band, [&](int i, int column) {
            return top + i >= low && top + i < high ? wide(band[(top + i - low) * W + column]) : nothing();
        });
    __syncthreads();
    const int rows = min(ROWS, OH - row);
    for (int column = threadIdx.x; column < OW; column += THREADS) {
        const int left = column * SW - PW;
        Element *const to = out + (image * OH + row) * OW + column;
        const bool within = left >= 0 && left + REACH <= W;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const Element *const from = band + r * W + left;
            float found = nothing();
            if (within) {
#pragma unroll
                for (int k = 0; k < KW; ++k) found = joined(found, wide(from[k * DW]));
            } else {
                for (int k = 0; k < KW; ++k)
                    if (left + k * DW >= 0 && left + k * DW < W) found = joined(found, wide(from[k * DW]));
            }
            if (r < rows) to[r * OW] = Element(finished(found, top + r * SH, left));
        }
    }
}
