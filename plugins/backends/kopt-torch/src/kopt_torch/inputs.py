"""An input set: arguments, state and outputs of one call in shared memory, with their checksums."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import torch

from kopt.model.values import CallSpec, DictValue, ListValue, NamedValue, ScalarValue
from kopt_torch.checksum import checksum
from kopt_torch.tensors import SharedTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kopt.model.problem import WorkloadSignature
    from kopt.model.reference import Layout
    from kopt.model.values import Value
    from kopt.worker.segments import Segment
    from kopt_torch.copied_segments import CopiedSegment
    from kopt_torch.cuda_segments import CudaSegment
    from kopt_torch.drawing import Draw


_ENDS = 64
"""Elements at both ends of a tensor that are not changed alone."""
_TRIES = 64
_LARGE_BYTES = 1 << 28
"""Of a whole set: from then on what PyTorch keeps of drawing it is worth giving back."""


class TorchInputs:
    """See kopt.model.reference.InputSet. Its content is a function of workload, seed, distribution."""

    def __init__(
        self,
        draw: Callable[[int], tuple[Draw, dict[str, torch.Tensor]]],
        signature: WorkloadSignature,
        *,
        workload: str,
        seed: int,
        distribution: str,
        init: list[Any],
        mutates: tuple[str, ...],
        device: str,
        fixed: Collection[str] = (),
        layout: Layout = "contiguous",
    ) -> None:
        self.workload, self.seed, self.distribution = workload, seed, distribution
        self._draw, self._mutates, self._device, self._fixed = draw, mutates, device, fixed
        self._layout: Layout = layout
        self._shared: dict[str, SharedTensor] = {}
        self._outputs: list[SharedTensor] = []
        self._perturbed: set[str] = set()
        drawn, state = draw(seed)
        arguments = self._share_arguments(drawn)
        self._positional, self._keywords = drawn.values, drawn.keywords
        self._layout = "contiguous"
        shared_state = {name: self._share(name, tensor) for name, tensor in state.items()}
        self.state = {name: self._shared[name].tensor for name in state}
        del drawn, state
        self._give_back()  # before more is taken
        self._outputs = [self._output(info.shape, info.dtype) for info in signature.outputs]
        self.output_names = [info.name for info in signature.outputs]
        self.call = CallSpec(
            arguments=arguments, state=shared_state,
            init=tuple(NamedValue(name=f"init{i}", value=self._scalar(v)) for i, v in enumerate(init)),
            outputs=tuple(output.ref() for output in self._outputs),
            structure=signature.structure,
        )  # fmt: skip
        self._sums = {name: checksum(shared.payload) for name, shared in self._shared.items()}

    def _share_arguments(self, drawn: Draw) -> tuple[NamedValue, ...]:
        """Copy arguments into shared memory, and put that in their place: nothing is kept twice.

        One after the other: what was drawn is let go of before the next one's memory is taken.
        """
        found = []
        for index, name in enumerate(drawn.names):
            found.append(NamedValue(name=name, value=self._share(name, drawn.values[index])))
            drawn.values[index] = self._own(name, drawn.values[index])
        for name in drawn.keywords:
            value = self._share(name, drawn.keywords[name])
            found.append(NamedValue(name=name, value=value, keyword=True))
            drawn.keywords[name] = self._own(name, drawn.keywords[name])
        return tuple(found)

    def _share(self, name: str, value: Any) -> Value:
        if isinstance(value, torch.Tensor):
            shared = SharedTensor(tuple(value.shape), value.dtype, self._device, self._layout)
            shared.tensor.copy_(value)
            self._shared[name] = shared
            return shared.ref()
        if isinstance(value, list | tuple):
            items = tuple(self._share(f"{name}[{i}]", item) for i, item in enumerate(value))
            return ListValue(type="list" if isinstance(value, list) else "tuple", items=items)
        if isinstance(value, dict):
            return DictValue(items={k: self._share(f"{name}.{k}", v) for k, v in value.items()})
        return self._scalar(value)

    def _scalar(self, value: Any) -> Value:
        if isinstance(value, list | tuple):
            items = tuple(self._scalar(item) for item in value)
            return ListValue(type="list" if isinstance(value, list) else "tuple", items=items)
        if isinstance(value, dict):
            return DictValue(items={str(k): self._scalar(v) for k, v in value.items()})
        return ScalarValue(value=value)

    def _own(self, name: str, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._shared[name].tensor
        if isinstance(value, list | tuple):
            return type(value)(self._own(f"{name}[{i}]", v) for i, v in enumerate(value))
        if isinstance(value, dict):
            return {k: self._own(f"{name}.{k}", v) for k, v in value.items()}
        return value

    def _output(self, shape: tuple[int, ...], dtype: str) -> SharedTensor:
        return SharedTensor(shape, getattr(torch, dtype), self._device)

    @property
    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments as the judge sees them."""
        return self._positional, self._keywords

    @property
    def outputs(self) -> list[torch.Tensor]:
        """The judge's views of the output buffers."""
        return [output.tensor for output in self._outputs]

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The judge's views of arguments and state, by name."""
        return {name: shared.tensor for name, shared in self._shared.items()}

    @property
    def results(self) -> list[tuple[str, torch.Tensor]]:
        """Output buffers, then the arguments that are changed in place."""
        returned = list(zip(self.output_names, self.outputs, strict=True))
        return returned + [(name, self._shared[name].tensor) for name in self._mutates]

    @property
    def segments(self) -> list[Segment | CudaSegment | CopiedSegment]:
        """Every shared segment."""
        return [shared.segment for shared in [*self._shared.values(), *self._outputs]]

    def changed(self) -> list[str]:
        """Names of arguments and state whose bytes differ from what was drawn."""
        return [
            name for name, shared in self._shared.items()
            if checksum(shared.payload) != self._sums[name]
        ]  # fmt: skip

    def canaries_hurt(self) -> list[str]:
        """Names of tensors around which bytes were overwritten."""
        outputs = dict(zip(self.output_names, self._outputs, strict=True))
        return [name for name, s in {**self._shared, **outputs}.items() if s.canaries_hurt()]

    def restore(self) -> None:
        """Draw again from the same seed, into the same memory."""
        self._draw_again()
        self._give_back()
        for shared in [*self._shared.values(), *self._outputs]:
            shared.write_canaries()
        for name in self._perturbed:
            self._sums[name] = checksum(self._shared[name].payload)
        self._perturbed.clear()
        self._settle()

    def _draw_again(self) -> None:
        drawn, state = self._draw(self.seed)
        for name, value, _ in drawn.named():
            self._refill(name, value)
        for name, tensor in state.items():
            self._refill(name, tensor)

    def _give_back(self) -> None:
        """Return large memory that was drawn in: PyTorch would keep it from other processes."""
        if self._device == "cuda" and sum(each.nbytes for each in self.segments) >= _LARGE_BYTES:
            torch.cuda.empty_cache()

    def _settle(self) -> None:
        """Wait until what was written is there.

        Another process reads and writes this memory next, on a stream of its own, and on a busy
        device what is queued here may run after it: poison would then overwrite results.
        """
        if self._device == "cuda":
            torch.cuda.synchronize()

    def redraw(self, seed: int) -> None:
        """Draw other content into the same memory."""
        self.seed = seed
        self.restore()
        self._sums = {name: checksum(shared.payload) for name, shared in self._shared.items()}

    def perturb(self, seed: int) -> bool:
        """Overwrite one element within an input with another of its values; False: none suits.

        Zeros stay where they are, and so do the ends: a triangle stays one. Symmetric matrices are
        left alone, and so is what is ``fixed`` (sorted) and module state, which a module may pack
        once. ``restore`` undoes it.
        """
        generator = random.Random(seed)
        names = [
            name for name, shared in self._shared.items()
            if name not in self.state and name not in self._fixed and _suits(shared.tensor)
        ]  # fmt: skip
        for name in generator.sample(names, len(names)):
            flat = self._shared[name].tensor.view(-1)
            places = [generator.randrange(_ENDS, flat.numel() - _ENDS) for _ in range(_TRIES)]
            values = flat[torch.tensor(places, device=flat.device)].tolist()
            filled = [(at, value) for at, value in zip(places, values, strict=True) if value]
            others = [pair for pair in filled if pair[1] != filled[0][1]]
            if others:
                flat[filled[0][0]] = max(others, key=lambda pair: abs(pair[1] - filled[0][1]))[1]
                self._sums[name] = checksum(self._shared[name].payload)
                self._perturbed.add(name)
                return True
        return False

    def _refill(self, name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self._shared[name].tensor.copy_(value)
        elif isinstance(value, list | tuple):
            for i, item in enumerate(value):
                self._refill(f"{name}[{i}]", item)
        elif isinstance(value, dict):
            for key, item in value.items():
                self._refill(f"{name}.{key}", item)

    def poison(self, byte: int) -> None:
        """Set every byte of the outputs; 0xFF makes floats NaN."""
        for output in self._outputs:
            output.payload.fill_(byte)
        self._settle()

    def close(self) -> None:
        """Give the memory back."""
        self._positional, self._keywords, self.state = [], {}, {}
        for shared in [*self._shared.values(), *self._outputs]:
            shared.close()
        self._shared, self._outputs = {}, []


def _suits(tensor: torch.Tensor) -> bool:
    """Whether one element may change: floating, not tiny, and not a symmetric matrix."""
    if not tensor.dtype.is_floating_point or tensor.numel() < 4 * _ENDS:
        return False
    square = tensor.dim() >= 2 and tensor.shape[-2] == tensor.shape[-1]
    return not (square and bool(torch.equal(tensor, tensor.mT)))
