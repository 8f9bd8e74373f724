// Products of 64 channels with all pixels. A warp has sixteen channels, and writes eight at a time.
struct Results {
    static constexpr int TILES = BLOCK_N / 64, STAGE = 4 * 8 * OUT_PITCH;
    static constexpr bool EVEN = AREA % 2 == 0 && OW % 2 == 0;  // two results lie in one word
    float sums[TILES][SUMS];

    __device__ __forceinline__ void add(const Element *pixels, const Element *weights, int added) {
#pragma unroll
        for (int i = 0; i < TILES; ++i)
            multiply_group(sums[i], weights + i * 64 * PIECE, BLOCK_N * 16, pixels, PITCH * 16, added);
    }

    __device__ __forceinline__ void write(Element *out, Element *stage, const Line &line, int channels,
                                          $bias_parameter int thread) {
        const int lane = thread % 32, warp = thread / 32;
        Element *const staged = stage + warp * 8 * OUT_PITCH;
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            hold(sums[i]);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int eight = i * 64 + warp * 16 + half * 8, channel = eight + lane / 4;
                $added
                Element *to = staged + line.place(lane / 4, channel) + lane % 4 * 2;
#pragma unroll
                for (int j = 0; j < PIXELS / 8; ++j) {
                    const float *found = &sums[i][j * 4 + half * 2];
                    struct alignas(EVEN ? 2 * sizeof(Element) : sizeof(Element)) Pair {
                        Element x, y;
                    };
                    *reinterpret_cast<Pair *>(to + j * 8) =
                        Pair{Element(found[0]$plus), Element(found[1]$plus)};
                }
                __syncwarp();
                line.write<32, 8>(out, staged, eight, channels, lane);
                __syncwarp();
            }
        }
    }
};
