// Count and mean of the values seen so far, and the sum of their squared distances from it.
struct Running {
    float count = 0, mean = 0, squares = 0;
};

// Welford's update by a whole piece at a time, as Chan et al. merge two samples.
__device__ __forceinline__ void include(Running &seen, const Values &values) {
    float mean = 0, squares = 0;
#pragma unroll
    for (int j = 0; j < PIECE; ++j) mean += values.at[j];
    mean /= PIECE;
#pragma unroll
    for (int j = 0; j < PIECE; ++j)
        squares = fmaf(values.at[j] - mean, values.at[j] - mean, squares);
    const float before = seen.count, apart = mean - seen.mean;
    seen.count += PIECE;
    const float share = PIECE / seen.count;
    seen.mean += apart * share;
    seen.squares += squares + apart * apart * before * share;
}

// What all threads of a row have seen together.
__device__ __forceinline__ Running of_row(const Running &seen) {
    Running all;
    all.count = row_sum(seen.count);
    all.mean = row_sum(seen.count * seen.mean) / fmaxf(all.count, 1);  // a share may be empty
    const float apart = seen.mean - all.mean;
    all.squares = row_sum(seen.squares + seen.count * apart * apart);
    return all;
}
