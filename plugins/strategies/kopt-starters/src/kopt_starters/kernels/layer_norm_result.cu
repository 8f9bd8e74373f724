struct Result {
    float mean, scale;
    __device__ Result(const Running &row, float eps)
        : mean(row.mean), scale(rsqrtf(row.squares / row.count + eps)) {}
    __device__ float operator()(float value) const { return (value - mean) * scale; }
};
