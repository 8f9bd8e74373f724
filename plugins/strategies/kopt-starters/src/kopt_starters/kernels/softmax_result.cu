struct Result {
    float shift, scale;
    __device__ Result(const Running &row, float) : shift(row.most), scale(1 / row.sum) {}
    __device__ float operator()(float value) const { return exponential(value, shift) * scale; }
};
