// Results that no cache has room for are written past it.
__device__ __forceinline__ void store(Memory *to, const Values &values) {
    if (STREAM) __stcs(to, narrowed(values));
    else *to = narrowed(values);
}
