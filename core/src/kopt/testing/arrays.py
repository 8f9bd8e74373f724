"""Small tensors in judge-owned shared memory, from plain Python numbers."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kopt.model.device import DeviceKind
from kopt.model.reference import SharedSegment
from kopt.model.values import TensorRef
from kopt.worker.segments import ITEM_BYTES, Layout, Segment

_FORMATS = {
    "float64": "d", "float32": "f", "float16": "e", "int64": "q", "int32": "i", "int16": "h",
    "int8": "b", "uint8": "B", "bool": "?",
}  # fmt: skip
_CANARY = 0xA5
Number = bool | int | float


@dataclass(frozen=True)
class Array:
    """The content of a contiguous tensor, row by row; of one dimension unless ``shape`` is given."""

    values: tuple[Number, ...]
    dtype: str = "float32"
    shape: tuple[int, ...] | None = None

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape."""
        return (len(self.values),) if self.shape is None else self.shape

    @classmethod
    def full(cls, like: Array, value: Number) -> Array:
        """Return an array of the same type and shape, filled with ``value``."""
        return cls((value,) * len(like.values), like.dtype, like.extents)


class SharedArray(Protocol):
    """An array that a candidate process can map."""

    @property
    def segment(self) -> SharedSegment:
        """What has to be announced to the process."""
        ...

    def ref(self) -> TensorRef:
        """Return how the process finds it."""
        ...

    def values(self) -> tuple[Number, ...]:
        """Return what it holds now."""
        ...

    def canaries_hurt(self) -> bool:
        """Whether bytes around it were overwritten."""
        ...

    def close(self) -> None:
        """Give the memory back."""
        ...


def share(array: Array, device: DeviceKind) -> SharedArray:
    """Put an array into shared memory of the device (``cuda`` needs kopt-torch)."""
    return _CpuArray(array) if device == "cpu" else _TorchArray(array, device)


class _CpuArray:
    def __init__(self, array: Array) -> None:
        self._array = array
        self._format = f"={len(array.values)}{_FORMATS[array.dtype]}"
        self._nbytes = len(array.values) * ITEM_BYTES[array.dtype]
        layout = Layout.around(self._nbytes)
        self._start = layout.start
        self._segment = Segment(layout.nbytes, layout.guards)
        self._segment.map[:] = bytes([_CANARY]) * self._segment.nbytes
        struct.pack_into(self._format, self._segment.map, self._start, *array.values)

    @property
    def segment(self) -> SharedSegment:
        return self._segment

    def ref(self) -> TensorRef:
        extents = self._array.extents
        strides = tuple(math.prod(extents[i + 1 :]) for i in range(len(extents)))
        return TensorRef(
            segment=self._segment.id, offset=self._start, dtype=self._array.dtype, shape=extents,
            strides=strides,
        )  # fmt: skip

    def values(self) -> tuple[Number, ...]:
        return struct.unpack_from(self._format, self._segment.map, self._start)

    def canaries_hurt(self) -> bool:
        whole = self._segment.map
        around = whole[: self._start] + whole[self._start + self._nbytes :]
        return around.count(_CANARY) != len(around)

    def close(self) -> None:
        self._segment.close()


class _TorchArray:
    def __init__(self, array: Array, device: DeviceKind) -> None:
        import torch

        from kopt_torch.tensors import DTYPES, SharedTensor

        content = torch.tensor(array.values, dtype=DTYPES[array.dtype]).view(array.extents)
        self._shared: Any = SharedTensor(array.extents, DTYPES[array.dtype], device)
        self._shared.tensor.copy_(content)

    @property
    def segment(self) -> SharedSegment:
        found: SharedSegment = self._shared.segment
        return found

    def ref(self) -> TensorRef:
        found: TensorRef = self._shared.ref()
        return found

    def values(self) -> tuple[Number, ...]:
        return tuple(self._shared.tensor.flatten().tolist())

    def canaries_hurt(self) -> bool:
        return bool(self._shared.canaries_hurt())

    def close(self) -> None:
        self._shared.close()


def differs(found: Sequence[Number], wanted: Sequence[Number], tolerance: float) -> str:
    """Say where two contents differ by more than ``tolerance`` (relative); empty: nowhere."""
    if len(found) != len(wanted):
        return f"{len(found)} elements, not {len(wanted)}"
    for index, (have, want) in enumerate(zip(found, wanted, strict=True)):
        if not math.isclose(have, want, rel_tol=tolerance, abs_tol=tolerance):
            return f"element {index} is {have!r}, not {want!r}"
    return ""
