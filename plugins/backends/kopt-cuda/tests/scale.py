# /// kopt
# language = "cuda"
# entry = "scale"
# [knobs]
# BLOCK = [128, 256]
# ///
"""Doubles a vector: CUDA C++ in a string, launched by Python."""

import functools

import cupy
import numpy
import torch

SOURCE = r"""
extern "C" __global__ void scale(const float *x, float *out, int n, float by) {
    int at = blockIdx.x * BLOCK + threadIdx.x;
    if (at < n) out[at] = by * x[at];
}
"""


@functools.cache
def kernel(block):
    return cupy.RawKernel(SOURCE, "scale", options=(f"-DBLOCK={block}",))


def scale(x, *, BLOCK):
    out = torch.empty_like(x)
    n = x.numel()
    arguments = (x.data_ptr(), out.data_ptr(), numpy.int32(n), numpy.float32(2))
    kernel(BLOCK)(((n + BLOCK - 1) // BLOCK,), (BLOCK,), arguments)
    return out
