$header
$lanes
$functions
#define MAXIMUM $maximum
#define INCLUDE $include
#define DIVISOR $divisor
static const int64_t WINDOW[3] = $window, STRIDE[3] = $stride, PADDING[3] = $padding, DILATION[3] = $dilation;
static const int64_t REACH = (BLOCK - 1) * $step + 1, SPAN = REACH + ($wide - 1) * $apart;

static inline lanes joined(lanes a, lanes b) { return MAXIMUM ? choose((b > a) | (b != b), b, a) : a + b; }

// How many positions a mean counts along one dimension.
static inline float counted(int dim, int64_t at, int64_t extent) {
    const int64_t begin = at * STRIDE[dim] - PADDING[dim], end = begin + WINDOW[dim];
    const int64_t low = INCLUDE || begin > 0 ? begin : 0, most = INCLUDE ? extent + PADDING[dim] : extent;
    return (end < most ? end : most) - low;
}

// Join a row of `count` elements to `to`; `first` sets it instead.
static inline void take(float* to, const float* row, int64_t count, bool first) {
    int64_t at = 0;
    for (; at + LANES <= count; at += LANES)
        store(to + at, first ? load(row + at) : joined(load(to + at), load(row + at)));
    if (at == count) return;
    const lanes last = load_some(row + at, count - at, 0);
    store_some(to + at, first ? last : joined(load_some(to + at, count - at, 0), last), count - at);
}

// One row of up to BLOCK results from column `start` on: windows are joined over depth and height in rows
// as wide as they are read, then along the row, and of these every STRIDE-th is a result.
static inline void pooled_row(const float* plane, float* out, const int64_t* extents, int64_t z, int64_t y,
                              int64_t start, int64_t count, const float* widths) {
    float joint[SPAN + LANES], along[REACH + LANES];
    const float nothing = MAXIMUM ? -__builtin_inff() : 0;
    const int64_t origin = start * STRIDE[2] - PADDING[2];
    const int64_t reach = (count - 1) * STRIDE[2] + 1, span = reach + (WINDOW[2] - 1) * DILATION[2];
    const int64_t left = origin < 0 ? -origin : 0;
    const int64_t right = origin + span > extents[2] ? extents[2] - origin : span;
    for (int64_t at = 0; at < left && at < span; ++at) joint[at] = nothing;
    for (int64_t at = right > 0 ? right : 0; at < span; ++at) joint[at] = nothing;
    bool first = true;
    for (int64_t dz = 0; dz < WINDOW[0]; ++dz)
        for (int64_t dy = 0; dy < WINDOW[1]; ++dy) {
            const int64_t from_z = z * STRIDE[0] - PADDING[0] + dz * DILATION[0];
            const int64_t from_y = y * STRIDE[1] - PADDING[1] + dy * DILATION[1];
            if (from_z < 0 || from_z >= extents[0] || from_y < 0 || from_y >= extents[1] || right <= left) continue;
            const float* const row = plane + (from_z * extents[1] + from_y) * extents[2] + origin;
            take(joint + left, row + left, right - left, first);
            first = false;
        }
    for (int64_t at = left; first && at < right; ++at) joint[at] = nothing;
    for (int64_t at = 0; at < LANES; ++at) joint[span + at] = nothing;
    for (int64_t at = 0; at < reach; at += LANES) {
        lanes found = load(joint + at);
#pragma GCC unroll 8
        for (int64_t dx = 1; dx < WINDOW[2]; ++dx) found = joined(found, load(joint + at + dx * DILATION[2]));
        store(along + at, found);
    }
    if (MAXIMUM) {
        for (int64_t at = 0; at < count; ++at) out[at] = along[at * $step];
        return;
    }
    const float rows = counted(0, z, extents[0]) * counted(1, y, extents[1]);
    for (int64_t at = 0; at < count; ++at) out[at] = along[at * $step] / (DIVISOR ? DIVISOR : rows * widths[at]);
}

// Every thread pools rows of results of its own.
extern "C" void pool(const float* x, float* out, int64_t planes, int64_t depth, int64_t height, int64_t width,
                     int64_t deep, int64_t high, int64_t wide) {
    const int64_t extents[3] = {depth, height, width};
    const int64_t blocks = (wide + BLOCK - 1) / BLOCK;
    float* const widths = (float*)malloc(wide * sizeof(float));
    for (int64_t at = 0; at < wide; ++at) widths[at] = counted(2, at, width);
#pragma omp parallel for num_threads(THREADS) schedule(static)
    for (int64_t task = 0; task < planes * deep * high * blocks; ++task) {
        const int64_t start = task % blocks * BLOCK, y = task / blocks % high, z = task / blocks / high % deep;
        const int64_t plane = task / blocks / high / deep;
        const int64_t count = wide - start < BLOCK ? wide - start : BLOCK;
        pooled_row(x + plane * depth * height * width, out + ((plane * deep + z) * high + y) * wide + start,
                   extents, z, y, start, count, widths + start);
    }
    free(widths);
}
