"""Tensors of the test's own process in place of judge-owned memory: CUDA IPC needs two processes."""

from __future__ import annotations

from typing import Any

from kopt.model.values import TensorRef


class OwnTensors:
    """Opens references to the tensors that it was made of; a segment is a tensor's place among them."""

    def __init__(self, *tensors: Any) -> None:
        self._tensors = tensors

    def open(self, ref: TensorRef) -> Any:
        """Return the tensor that a reference means."""
        return self._tensors[ref.segment]
