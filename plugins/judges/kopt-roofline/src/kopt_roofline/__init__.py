"""A judge for kopt that needs no language model: rules over what profilers measured."""

from __future__ import annotations

from kopt_roofline.judge import Roofline

__all__ = ["Roofline"]
