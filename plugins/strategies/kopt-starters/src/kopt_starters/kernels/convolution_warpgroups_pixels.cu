// Products of 64 pixels with all channels. They turn on their way out, STAGED channels at a time.
struct Results {
    static constexpr int TILES = PIXELS / 64, PASSES = BLOCK_N / STAGED, BUFFERS = PASSES > 1 ? 2 : 1;
    static constexpr int STAGE = BUFFERS * STAGED * OUT_PITCH;
    static_assert(ZH == 1 && ZW == 1 && PIXELS % 64 == 0);
    float sums[TILES][SUMS];

    // Add what a row of the kernel makes of a row of pixels; `added`: not as the first.
    __device__ __forceinline__ void add(const Element *pixels, const Element *weights, int added) {
#pragma unroll
        for (int kw = 0; kw < KW; ++kw) {
            const int from = SIDEWAYS.from(0, kw) - LEFT;
#pragma unroll
            for (int k = 0; k < CHUNKS; k += 2) {
#pragma unroll
                for (int i = 0; i < TILES; ++i)
                    multiply_group(sums[i],
                                   pixels + (k * PITCH + from % SW * SIDE + from / SW + i * 64) * PIECE,
                                   PITCH * 16, weights + (kw * CHUNKS + k) * BLOCK_N * PIECE,
                                   BLOCK_N * 16, added + kw + k);
            }
        }
    }

    __device__ __forceinline__ void hold_all() {
#pragma unroll
        for (int i = 0; i < TILES; ++i) hold(sums[i]);
    }

    __device__ __forceinline__ void clear() {}  // there are no rows without products

    __device__ __forceinline__ void write(Element *out, Element *stage, const Line &line, int channels,
                                          $bias_parameter int thread) const {
        const int lane = thread % 32;
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) {
            Element *const staged = stage + pass % BUFFERS * STAGED * OUT_PITCH;
#pragma unroll
            for (int j = 0; j < STAGED / 8; ++j) {
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const int at = j * 8 + lane % 4 * 2 + e, channel = pass * STAGED + at;
                    $added
                    Element *to = staged + line.place(at, channel) + thread / 32 * 16 + lane / 4;
#pragma unroll
                    for (int i = 0; i < TILES; ++i) {
                        const float *found = &sums[i][(pass * STAGED / 8 + j) * 4 + e];
                        to[i * 64] = Element(found[0]$plus);
                        to[i * 64 + 8] = Element(found[2]$plus);
                    }
                }
            }
            group_barrier();
            line.write<128, STAGED>(out, staged, pass * STAGED, channels, thread);
        }
    }
};
