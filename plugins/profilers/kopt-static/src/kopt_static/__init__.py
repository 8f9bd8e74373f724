"""A profiler for kopt that needs no GPU and runs nothing: it reads what the compiler made."""

from __future__ import annotations

from kopt_static.profiler import Static

__all__ = ["Static"]
