"""CUDA C++ kernels in kopt: compiled by NVRTC or nvcc, launched by a plan in the file's header."""

from __future__ import annotations

from kopt_cuda.backend import CudaBackend

__all__ = ["CudaBackend"]
