    if (threadIdx.x == 0 && row < rows) to[row] = Written(loss);
