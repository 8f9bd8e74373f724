"""The autotune strategy of kopt: tries other values for the knobs that a kernel declares."""

from __future__ import annotations

from kopt_autotune.strategy import Autotune

__all__ = ["Autotune"]
