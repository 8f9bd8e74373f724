"""Triton kernels in kopt: on a GPU, in the interpreter, or compiled ahead of time for a named GPU."""

from __future__ import annotations

from kopt_triton.backend import TritonBackend

__all__ = ["TritonBackend"]
