// /// kopt
// entry = "moving_average"
// arguments = ["x", "weight", "out", "x.shape[0]", "x.shape[1]"]
// [knobs]
// ROWS = [8, 1, 4, 16]
// ///
#include <algorithm>
#include <cstdint>

// One row is a chain of dependent steps; ROWS of them side by side keep the processor busy.
extern "C" void moving_average(const float* x, double weight, float* out, int64_t rows,
                               int64_t cols) {
    const float w = static_cast<float>(weight);
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < rows; first += ROWS) {
        const int64_t count = std::min<int64_t>(ROWS, rows - first);
        float state[ROWS];
        for (int64_t r = 0; r < count; ++r) out[(first + r) * cols] = state[r] = x[(first + r) * cols];
        for (int64_t c = 1; c < cols; ++c)
            for (int64_t r = 0; r < count; ++r) {
                const int64_t at = (first + r) * cols + c;
                out[at] = state[r] = state[r] + w * (x[at] - state[r]);
            }
    }
}
