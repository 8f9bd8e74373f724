// The largest of the values seen so far, and the sum of their exponentials relative to it.
struct Running {
    float most = -INFINITY, sum = 0;
};

// e to the power of value - shift. Rows of halves are read faster than expf would come to its end, and
// have fewer digits than are lost here. The difference comes first: a product of each with log2(e)
// would lose what is left of large values that are close to each other.
__device__ __forceinline__ float exponential(float value, float shift) {
    constexpr float LOG2_E = 1.4426950408889634f;
    if constexpr (sizeof(Element) == 2) return power_of_two((value - shift) * LOG2_E);
    return expf(value - shift);
}

__device__ __forceinline__ void include(Running &seen, const Values &values) {
    float most = seen.most;
#pragma unroll
    for (int j = 0; j < PIECE; ++j) most = fmaxf(most, values.at[j]);
    // Where only -inf was seen, -inf must not be subtracted from it.
    const float shift = most == -INFINITY ? 0.0f : most;
    seen.sum *= expf(seen.most - shift);
#pragma unroll
    for (int j = 0; j < PIECE; ++j) seen.sum += exponential(values.at[j], shift);
    seen.most = most;
}

// What all threads of a row have seen together.
__device__ __forceinline__ Running of_row(const Running &seen) {
    Running all;
    all.most = row_maximum(seen.most);
    const float shift = all.most == -INFINITY ? 0.0f : all.most;
    all.sum = row_sum(seen.sum * expf(seen.most - shift));
    return all;
}
