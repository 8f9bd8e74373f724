// Products of 64 channels with all pixels. A warp has sixteen channels, and writes eight at a time.
struct Results {
    static constexpr int TILES = BLOCK_N / 64, STAGE = 4 * 8 * OUT_PITCH;
    static constexpr bool PAIRS = AREA % 2 == 0 && OW % 2 == 0 && ZW == 1;  // two lie in one word
    static constexpr int PHASES = SIDEWAYS.reached(ZW);  // of results side by side, those with products
    float sums[PHASES][TILES][SUMS];

    // Add what a row of the kernel makes of a row of pixels; `added`: not as the first.
    __device__ __forceinline__ void add(const Element *pixels, const Element *weights, int added) {
#pragma unroll
        for (int kw = 0; kw < KW; ++kw) {
#pragma unroll
            for (int phase = 0; phase < ZW; ++phase) {
                if (!SIDEWAYS.reaches(phase, kw)) continue;
                const int from = SIDEWAYS.from(phase, kw) - LEFT;
#pragma unroll
                for (int k = 0; k < CHUNKS; k += 2) {
#pragma unroll
                    for (int i = 0; i < TILES; ++i)
                        multiply_group(sums[SIDEWAYS.reached(phase)][i],
                                       weights + ((kw * CHUNKS + k) * BLOCK_N + i * 64) * PIECE,
                                       BLOCK_N * 16,
                                       pixels + (k * PITCH + from % SW * SIDE + from / SW) * PIECE,
                                       PITCH * 16, added + kw - SIDEWAYS.first_tap(phase) + k);
                }
            }
        }
    }

    __device__ __forceinline__ void hold_all() {
#pragma unroll
        for (int i = 0; i < PHASES * TILES; ++i) hold(sums[i / TILES][i % TILES]);
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < PHASES * TILES * SUMS; ++i)
            sums[i / (TILES * SUMS)][i / SUMS % TILES][i % SUMS] = 0.0f;
    }

    __device__ __forceinline__ void write(Element *out, Element *stage, const Line &line, int channels,
                                          $bias_parameter int thread) const {
        const int lane = thread % 32, warp = thread / 32;
        Element *const staged = stage + warp * 8 * OUT_PITCH;
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int eight = i * 64 + warp * 16 + half * 8, channel = eight + lane / 4;
                $added
                Element *to = staged + line.place(lane / 4, channel) + lane % 4 * 2 * ZW;
#pragma unroll
                for (int j = 0; j < PIXELS / 8; ++j) {
#pragma unroll
                    for (int phase = 0; phase < ZW; ++phase) {
                        const float *found = &sums[SIDEWAYS.reached(phase)][i][j * 4 + half * 2];
                        const bool has = SIDEWAYS.first_tap(phase) < KW;
                        const float x = has ? found[0] : 0.0f, y = has ? found[1] : 0.0f;
                        struct alignas(PAIRS ? 2 * sizeof(Element) : sizeof(Element)) Pair {
                            Element x, y;
                        } both{Element(x$plus), Element(y$plus)};
                        if (PAIRS)
                            *reinterpret_cast<Pair *>(to + j * 8) = both;
                        else
                            to[j * 8 * ZW + phase] = both.x, to[(j * 8 + 1) * ZW + phase] = both.y;
                    }
                }
                __syncwarp();
                line.write<32, 8>(out, staged, eight, channels, lane);
                __syncwarp();
            }
        }
    }
};
