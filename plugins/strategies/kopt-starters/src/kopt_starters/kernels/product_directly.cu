// Of rows of an operand as it is, what both groups read at once: 16 numbers of 128 rows.
struct Direct {
    const Element *from;
    int rows, depth;
    long long row_stride, depth_stride;
    float held[8];

    // Threads beside each other read what is beside each other, in steps of 16 rows or two numbers.
    __device__ __forceinline__ bool along() const { return depth_stride == 1; }
    __device__ __forceinline__ int row() const { return along() ? threadIdx.x / 16 : threadIdx.x % 128; }
    __device__ __forceinline__ int at() const { return along() ? threadIdx.x % 16 : threadIdx.x / 128; }

    __device__ __forceinline__ void read(int k) {
        const int hop = along() ? 16 : 2;
        const bool inside = along() ? k + at() < depth : row() < rows;
        const int left = inside ? (along() ? rows - row() : depth - k - at()) : 0;
        const Element *next = from + row() * row_stride + (k + at()) * depth_stride;
#pragma unroll
        for (int i = 0; i < 8; ++i, next += along() ? 16 * row_stride : 2 * depth_stride)
            held[i] = i * hop < left ? *next : 0.0f;
    }
    __device__ __forceinline__ void stage(float *to) const {
        to += at() * STAGED + row();
#pragma unroll
        for (int i = 0; i < 8; ++i, to += along() ? 16 : 2 * STAGED) *to = held[i];
    }
};

// Eight of 128 numbers that a thread of 16 has.
__device__ __forceinline__ void take_eight(float (&to)[8], const float *line, int thread) {
    const float4 one = *reinterpret_cast<const float4 *>(line + 4 * thread);
    const float4 other = *reinterpret_cast<const float4 *>(line + 64 + 4 * thread);
    to[0] = one.x, to[1] = one.y, to[2] = one.z, to[3] = one.w;
    to[4] = other.x, to[5] = other.y, to[6] = other.z, to[7] = other.w;
}

// A tile's product from the operands as they are, by both groups: 128 rows and 128 columns at a time.
__device__ __forceinline__ void compute_directly(const Result &result, float *staged, Direct left,
                                                 Direct right, int top, int side) {
    const int i = threadIdx.x / 16, j = threadIdx.x % 16;
#pragma unroll 1
    for (int beyond = 0; beyond < BLOCK_N; beyond += 128) {
        float sums[8][8] = {}, part[8][8] = {};
        left.read(0), right.read(0);
#pragma unroll 1
        for (int k = 0; k < left.depth; k += 16) {
            meet_groups();
            left.stage(staged), right.stage(staged + 16 * STAGED);
            meet_groups();
            left.read(k + 16), right.read(k + 16);
#pragma unroll 2
            for (int n = 0; n < 16; ++n) {
                float rows[8], columns[8];
                take_eight(rows, staged + n * STAGED, i);
                take_eight(columns, staged + (16 + n) * STAGED, j);
#pragma unroll
                for (int y = 0; y < 8; ++y)
#pragma unroll
                    for (int x = 0; x < 8; ++x) part[y][x] = fmaf(rows[y], columns[x], part[y][x]);
            }
            if (k % 64 == 48 || k + 16 >= left.depth)  // there may be much to add up
#pragma unroll
                for (int y = 0; y < 8; ++y)
#pragma unroll
                    for (int x = 0; x < 8; ++x) sums[y][x] += part[y][x], part[y][x] = 0.0f;
        }
        // Rows 4 * i to 4 * i + 3, and those 64 further down.
        Element *line = result.out + (top + 4 * i) * result.o_row + side;
#pragma unroll
        for (int y = 0; y < 8; ++y, line += (y == 4 ? 61 : 1) * result.o_row)
#pragma unroll
            for (int x = 0; x < 8; ++x) {
                const int row = top + y / 4 * 64 + 4 * i + y % 4, at = beyond + x / 4 * 64 + 4 * j + x % 4;
                if (row < result.M && at < BLOCK_N && side + at < result.N)
                    line[at] = result.finished(sums[y][x], row, side + at);
            }
        right.from += 128 * right.row_stride, right.rows -= 128;
    }
}
