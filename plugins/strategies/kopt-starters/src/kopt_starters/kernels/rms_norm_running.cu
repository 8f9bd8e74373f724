// Count of the values seen so far, and the sum of their squares.
struct Running {
    float count = 0, squares = 0;
};

__device__ __forceinline__ void include(Running &seen, const Values &values) {
#pragma unroll
    for (int j = 0; j < PIECE; ++j) seen.squares = fmaf(values.at[j], values.at[j], seen.squares);
    seen.count += PIECE;
}

// What all threads of a row have seen together.
__device__ __forceinline__ Running of_row(const Running &seen) {
    Running all;
    all.count = row_sum(seen.count);
    all.squares = row_sum(seen.squares);
    return all;
}
