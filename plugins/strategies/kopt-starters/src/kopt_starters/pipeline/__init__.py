"""Kernel files that call several families' kernels one after the other."""
