"""Judge-owned tensors in shared memory, and how a candidate process looks at them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from kopt.worker.segments import GUARD_BYTES, ITEM_BYTES, Layout, Segment
from kopt_torch.copied_segments import CopiedSegment, Copy, device_segment
from kopt_torch.cuda_segments import FIRST_ID, CudaSegment, Opened, open_segment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kopt.model.executable import Memory
    from kopt.model.reference import Layout as InputLayout
    from kopt.model.values import TensorRef

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in ITEM_BYTES}
NAMES: dict[torch.dtype, str] = {dtype: name for name, dtype in DTYPES.items()}
PIECE = 1 << 26
"""Elements of large tensors that are looked at together."""
_CANARY = 0xA5
_PADDING = 0xFF


def pieces(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield tensors of as many elements each, flat, some of the same elements of all at a time.

    What is computed of a piece takes little memory beside tensors of several GB.
    """
    flat = [tensor.reshape(-1) for tensor in tensors]
    for start in range(0, flat[0].numel(), PIECE):
        yield tuple(each[start : start + PIECE] for each in flat)


def all_finite(values: torch.Tensor) -> bool:
    """Whether no element is NaN or infinite; needs no memory beside the tensor."""
    if not values.dtype.is_floating_point or not values.numel():
        return True
    return all(bool(torch.isfinite(end)) for end in torch.aminmax(values))  # NaN spreads to both


@dataclass(frozen=True)
class Placement:
    """Where the elements of a tensor lie in its storage; numbers of elements."""

    elements: int
    """Of the storage."""
    offset: int
    strides: tuple[int, ...]

    @classmethod
    def of(cls, shape: tuple[int, ...], layout: InputLayout) -> Placement:
        """Place a tensor; one without dimensions, or with too few to transpose, lies as always."""
        plain = cls(torch.Size(shape).numel(), 0, _strides(shape))
        if not shape or not plain.elements:
            return plain
        match layout:
            case "transposed" if len(shape) > 1:
                swapped = _strides((*shape[:-2], shape[-1], shape[-2]))
                return cls(plain.elements, 0, (*swapped[:-2], swapped[-1], swapped[-2]))
            case "spaced" if len(shape) == 1:
                return cls(2 * shape[0], 0, (2,))
            case "spaced":
                wider = (*shape[:-1], shape[-1] + 1)
                return cls(torch.Size(wider).numel(), 0, _strides(wider))
            case "misaligned":
                return cls(plain.elements + 1, 1, plain.strides)
        return plain


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


class SharedTensor:
    """A tensor between canaries, in memory that a candidate process can map.

    On a CPU the outermost canaries are pages that the candidate process cannot access.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        device: str,
        layout: InputLayout = "contiguous",
    ) -> None:
        place = Placement.of(shape, layout)
        self._item = ITEM_BYTES[NAMES[dtype]]
        self.nbytes = place.elements * self._item
        if device == "cuda":
            self.segment: Segment | CudaSegment | CopiedSegment = device_segment(
                self.nbytes + 2 * GUARD_BYTES
            )
            self.bytes = self.segment.bytes
            self._start = GUARD_BYTES
        else:
            around = Layout.around(self.nbytes)
            self.segment = Segment(around.nbytes, around.guards)
            self.bytes = torch.frombuffer(self.segment.map, dtype=torch.uint8)
            self._start = around.start
        self.payload = self.bytes[self._start : self._start + self.nbytes]
        flat = self.payload.view(dtype)
        if layout != "contiguous":
            self.payload.fill_(_PADDING)  # what lies between the elements
        self.tensor = flat[place.offset :].as_strided(
            shape, place.strides, flat.storage_offset() + place.offset
        )
        self._offset = self._start + place.offset * self._item
        self.write_canaries()

    def write_canaries(self) -> None:
        """Write the pattern before and after the payload."""
        for canary in self._canaries():
            canary.fill_(_CANARY)

    def canaries_hurt(self) -> bool:
        """Whether a byte before or after the payload was overwritten."""
        return bool((torch.cat(self._canaries()) != _CANARY).any().item())

    def _canaries(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.bytes[: self._start], self.bytes[self._start + self.nbytes :]

    def ref(self) -> TensorRef:
        """Return how a candidate process finds it."""
        from kopt.model.values import TensorRef

        return TensorRef(
            segment=self.segment.id, offset=self._offset, dtype=NAMES[self.tensor.dtype],
            shape=tuple(self.tensor.shape), strides=tuple(self.tensor.stride()),
        )  # fmt: skip

    def close(self) -> None:
        """Give the memory back."""
        empty = torch.empty(0, dtype=torch.uint8)
        self.bytes = self.payload = self.tensor = empty
        self.segment.close()


def _copied(shared: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same strides, by way of the host: tools know then that it was written."""
    copy = torch.empty_strided(shared.shape, shared.stride(), dtype=shared.dtype, device="cuda")
    copy.copy_(shared.cpu())
    return copy


class OpenTensors:
    """A candidate process's tensors over judge-owned memory; IPC handles are opened once."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._opened: dict[int, Opened | Copy] = {}
        self._copies: dict[TensorRef, torch.Tensor] = {}

    def open(self, ref: TensorRef) -> torch.Tensor:
        """Return the tensor that a reference means (shared, not copied)."""
        if ref.segment >= FIRST_ID:
            flat = self._cuda_bytes(ref.segment)[ref.offset :]
        else:
            buffer = self._memory.buffer(ref)
            if not len(buffer):
                return torch.empty(ref.shape, dtype=DTYPES[ref.dtype])
            flat = torch.frombuffer(buffer, dtype=torch.uint8)
        size = ITEM_BYTES[ref.dtype]
        whole = flat[: flat.numel() // size * size].view(DTYPES[ref.dtype])
        shared = whole.as_strided(ref.shape, ref.strides)
        if shared.is_cuda and self._memory.private:
            if ref not in self._copies:
                self._copies[ref] = _copied(shared)
            return self._copies[ref]
        return shared

    def close(self, segments: list[int]) -> None:
        """Close the IPC handles of segments: until then the judge's memory stays taken."""
        for segment in segments:
            self._opened.pop(segment, None)
        self._copies = {r: copy for r, copy in self._copies.items() if r.segment not in segments}

    def _cuda_bytes(self, segment: int) -> torch.Tensor:
        if segment not in self._opened:
            copied = self._memory.copied(segment)
            self._opened[segment] = (
                Copy(*copied) if copied else open_segment(segment, self._memory.handle(segment))
            )
        return self._opened[segment].bytes

    def fetch(self, segments: list[int]) -> None:
        """Take the judge's content of segments that are copies."""
        for copy in self._exchanged(segments):
            copy.fetch()

    def store(self, segments: list[int]) -> None:
        """Hand the content of segments that are copies over."""
        for copy in self._exchanged(segments):
            copy.store()

    def _exchanged(self, segments: list[int]) -> Iterator[Copy]:
        found = (self._opened.get(segment) for segment in segments)
        return (each for each in found if isinstance(each, Copy))
