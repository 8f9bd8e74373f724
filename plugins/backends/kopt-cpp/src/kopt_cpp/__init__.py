"""C++ kernels for the CPU: compiled by the system's compiler, loaded with ctypes."""

from __future__ import annotations

from kopt_cpp.backend import CppBackend

__all__ = ["CppBackend"]
