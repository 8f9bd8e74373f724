"""PyTorch for kopt: the reference, its float64 oracle, the baselines, and Python candidates."""

from __future__ import annotations

from kopt_torch.backend import TorchBackend

__all__ = ["TorchBackend"]
