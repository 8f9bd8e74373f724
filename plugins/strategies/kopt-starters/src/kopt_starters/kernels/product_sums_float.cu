// The tile of a warp, 4 threads high and 8 wide, in registers.
struct Sums {
    static constexpr int HIGH = WARP_M / 4, WIDE = WARP_N / 8;
    // Of a long depth, sums of pieces are added to each other: one by one, errors would add up.
    static constexpr int PIECE_STEPS = LONG ? 1024 / BLOCK_K : 1;
    float sums[HIGH][WIDE], total[LONG ? HIGH : 1][LONG ? WIDE : 1] = {};
    int first_row, first_column, down, across, steps = 0;

    __device__ __forceinline__ Sums(int row, int column)
        : first_row(row), first_column(column), down(threadIdx.x % 32 / 8), across(threadIdx.x % 8) {
#pragma unroll
        for (int i = 0; i < HIGH; ++i)
#pragma unroll
            for (int j = 0; j < WIDE; ++j) sums[i][j] = 0;
    }

    // A thread's rows are LANES apart where reads go along the depth; else they come in fours.
    template <bool DEEP, int LANES> static __device__ __forceinline__ int place(int lane, int each) {
        return DEEP ? each * LANES + lane : each / 4 * 4 * LANES + lane * 4 + each % 4;
    }

    // A thread's part of a tile for 4 steps of the depth, read 16 bytes at a time.
    template <class Tile, bool DEEP, int LANES, int COUNT>
    static __device__ __forceinline__ void take(float (&to)[4][COUNT], const float *tile, int first,
                                                int lane, int k) {
        constexpr int OUTER = DEEP ? COUNT : 4, STEP = DEEP ? 4 : COUNT;
#pragma unroll
        for (int outer = 0; outer < OUTER; ++outer)
#pragma unroll
            for (int inner = 0; inner < STEP; inner += 4) {
                const int at = first + place<DEEP, LANES>(lane, DEEP ? outer : inner);
                const float *from = tile + (DEEP ? at * Tile::PITCH + k : (k + outer) * Tile::PITCH + at);
                const float4 four = *reinterpret_cast<const float4 *>(from);
                const float values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    (DEEP ? to[i][outer] : to[outer][inner + i]) = values[i];
            }
    }

    __device__ __forceinline__ void add(const float *left, const float *right) {
#pragma unroll
        for (int k = 0; k < BLOCK_K; k += 4) {
            float a[4][HIGH], b[4][WIDE];
            take<Left, LEFT_DEEP, 4>(a, left, first_row, down, k);
            take<Right, RIGHT_DEEP, 8>(b, right, first_column, across, k);
#pragma unroll
            for (int step = 0; step < 4; ++step)
#pragma unroll
                for (int i = 0; i < HIGH; ++i)
#pragma unroll
                    for (int j = 0; j < WIDE; ++j)
                        sums[i][j] = fmaf(a[step][i], b[step][j], sums[i][j]);
        }
        if constexpr (LONG)
            if (++steps % PIECE_STEPS == 0) fold();
    }

    __device__ __forceinline__ void fold() {
#pragma unroll
        for (int i = 0; i < HIGH; ++i)
#pragma unroll
            for (int j = 0; j < WIDE; ++j) {
                total[i][j] += sums[i][j];
                sums[i][j] = 0;
            }
    }

    __device__ __forceinline__ void write(const Result &to, int row, int column, float *) const {
        constexpr int COUNT = RIGHT_DEEP ? 1 : 4;
#pragma unroll
        for (int i = 0; i < HIGH; ++i)
#pragma unroll
            for (int j = 0; j < WIDE; j += COUNT) {
                float values[COUNT];
#pragma unroll
                for (int k = 0; k < COUNT; ++k)
                    values[k] = LONG ? total[LONG ? i : 0][LONG ? j + k : 0] + sums[i][j + k] : sums[i][j + k];
                to.put(values, row + first_row + place<LEFT_DEEP, 4>(down, i),
                       column + first_column + place<RIGHT_DEEP, 8>(across, j));
            }
    }
};
