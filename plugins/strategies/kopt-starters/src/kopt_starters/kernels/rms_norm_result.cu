struct Result {
    float scale;
    __device__ Result(const Running &row, float eps)
        : scale(rsqrtf(row.squares / row.count + eps)) {}
    __device__ float operator()(float value) const { return value * scale; }
};
