__device__ __forceinline__ void begin_products() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void commit_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void await_products() {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// Sums are not moved over this: products are written to them without the compiler seeing when.
__device__ __forceinline__ void hold(float (&c)[SUMS]) {
#pragma unroll
    for (int i = 0; i < SUMS; ++i) asm volatile("" : "+f"(c[i])::"memory");
}
