"""The judge's side of a problem: inputs, expected results and the oracle (all in shared memory)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from kopt.model.device import Device
from kopt.model.problem import Problem, Signature
from kopt.model.values import CallSpec


class Room(Protocol):
    """A device that is shared: its memory is reserved by name before it is taken, its time by turns."""

    def reserve(self, nbytes: int) -> None:
        """Wait until others leave ``nbytes``, for some minutes at most; from then on it is taken.

        For whatever comes of the problem: what was reserved before makes way.
        """
        ...

    def lend(self, nbytes: int) -> AbstractContextManager[bool]:
        """Reserve ``nbytes`` more for a while, where others leave them now: whether they do."""
        ...

    def make_way(self) -> None:
        """Let who waits to measure go first, between two pieces of work that have ended."""
        ...


class Alone:
    """A room in which nobody waits."""

    def reserve(self, nbytes: int) -> None:
        """Return at once."""

    def lend(self, nbytes: int) -> AbstractContextManager[bool]:
        """Others leave everything."""
        return nullcontext(True)

    def make_way(self) -> None:
        """There is nobody."""


class SharedSegment(Protocol):
    """Judge-owned memory that a candidate process can map."""

    id: int
    nbytes: int

    def announcement(
        self, alive: Callable[[], bool] | None = None
    ) -> tuple[dict[str, Any], tuple[int, ...]]:
        """Return what the other process must be told, and the descriptors to send along.

        ``alive`` says whether that process runs: one that does not has nothing open any more.
        """
        ...


@runtime_checkable
class CopiedSegment(SharedSegment, Protocol):
    """Memory that candidate processes cannot map, and have a copy of instead."""

    def push(self) -> None:
        """Put the judge's content where candidate processes fetch it."""
        ...

    def pull(self) -> None:
        """Take what a candidate process stored for the judge's content."""
        ...


class InputSet(Protocol):
    """One drawn set of arguments with its module state, shared with candidate processes."""

    workload: str
    seed: int
    distribution: str
    call: CallSpec
    """Arguments, state and outputs as references."""

    @property
    def outputs(self) -> list[Any]:
        """The judge's views of the output buffers."""
        ...

    @property
    def tensors(self) -> dict[str, Any]:
        """The judge's views of the input and state tensors, by name."""
        ...

    @property
    def segments(self) -> Sequence[SharedSegment]:
        """The shared segments behind ``call``, to be announced before it is bound."""
        ...

    @property
    def results(self) -> Sequence[tuple[str, Any]]:
        """What a call has to get right: output buffers, then arguments changed in place, by name."""
        ...

    def changed(self) -> list[str]:
        """Return the names of inputs and state whose bytes differ from what was drawn."""
        ...

    def canaries_hurt(self) -> list[str]:
        """Return the names of tensors around which bytes were overwritten."""
        ...

    def restore(self) -> None:
        """Write inputs, state and canaries as they were drawn."""
        ...

    def redraw(self, seed: int) -> None:
        """Write other content, drawn from ``seed``, into the same memory (addresses stay)."""
        ...

    def perturb(self, seed: int) -> bool:
        """Change one element within one input, in its domain; ``restore`` undoes it.

        False where no input suits.
        """
        ...

    def poison(self, byte: int) -> None:
        """Set every byte of the output buffers to ``byte``; 0xFF makes floats NaN."""
        ...

    def close(self) -> None:
        """Give the memory back."""
        ...


Layout = Literal["contiguous", "transposed", "spaced", "misaligned"]
"""How arguments lie in memory: ``transposed`` in the last two dimensions, ``spaced`` with a gap after
each row, ``misaligned`` by one element from where an allocator would put them."""


@dataclass(frozen=True)
class Change:
    """Inputs that a workload does not have, on which its reference means the same."""

    name: str
    """As ``rows=97``."""
    extents: Mapping[str, int] = field(default_factory=dict)
    """New extents, by the names that ``Reference.extents`` gives them; the others stay."""
    layout: Layout = "contiguous"
    """Of the arguments; outputs and module state stay contiguous."""
    content: str = ""
    """What is done to the values of arguments that may have any value: ``scale:100`` (a factor),
    ``offset:100`` (a summand), ``alternating`` (large values that cancel along every dimension),
    ``constant`` (one value for each first index), ``infinite:+`` and ``infinite:-`` (a few infinities
    in the first argument that may have any value); for all integers and bools ``lowest`` and
    ``highest`` of those drawn. Empty: nothing."""
    distribution: str = "native"


@dataclass(frozen=True)
class Answer:
    """What rows of the results should be."""

    rows: slice
    """Along the first dimension; ``slice(None)`` is all."""
    expected: list[Any]
    oracle: list[Any]


class Reference(Protocol):
    """A problem that has been made runnable in the judge process."""

    problem: Problem
    device: Device
    signature: Signature

    def lend(self, nbytes: int) -> AbstractContextManager[bool]:
        """Reserve memory of the device for a while, beyond what the problem takes; see Room."""
        ...

    def inputs(self, workload: str, seed: int, distribution: str = "native") -> InputSet:
        """Draw a set of arguments. ``distribution`` is ``native`` or one of ``distributions``."""
        ...

    @property
    def distributions(self) -> tuple[str, ...]:
        """Names of the input distributions that make sense for this problem, ``native`` first."""
        ...

    @property
    def sharper(self) -> tuple[str, ...]:
        """Names of further distributions, for wrong results that survive ``distributions``.

        The reference may be infinite on them.
        """
        ...

    @property
    def input_notes(self) -> tuple[str, ...]:
        """Sentences for a person: what was inferred of inputs that nothing declares."""
        ...

    def sharpen(self, names: Iterable[str]) -> None:
        """Add those of ``sharper`` to ``distributions`` on which the reference is finite."""
        ...

    def extents(self, workload: str) -> Mapping[str, int]:
        """Return the independent extents of a workload's arguments, by name."""
        ...

    def changed_inputs(self, workload: str, seed: int, change: Change) -> InputSet | None:
        """Draw arguments with other extents, layout or content.

        None where the reference cannot be run on them, or gives NaN, or mostly infinities.
        """
        ...

    def expected(self, inputs: InputSet) -> list[Any]:
        """Return what ``inputs.results`` should be, by the reference as the user runs it."""
        ...

    def expected_with(
        self, inputs: InputSet, arguments: Mapping[str, Any], state: Mapping[str, Any]
    ) -> list[Any]:
        """Return what ``expected`` would, had these arguments and state tensors these values.

        Names are those of ``inputs.tensors``; what is not named stays as drawn. Nothing given is
        written to.
        """
        ...

    def oracle(self, inputs: InputSet) -> list[Any]:
        """Return the same in float64, on the same (rounded) inputs."""
        ...

    def oracle_with(
        self, inputs: InputSet, arguments: Mapping[str, Any], state: Mapping[str, Any]
    ) -> list[Any]:
        """Return what ``oracle`` would, had these arguments and state tensors these values.

        They may be float64 where the problem's are narrower.
        """
        ...

    def answers(self, inputs: InputSet) -> Iterator[Answer]:
        """Yield expected results and oracle together, in slices where the inputs are large."""
        ...

    def copy_ms(self, nbytes: int) -> float:
        """Median time in ms of a plain device copy that reads and writes ``nbytes`` in all."""
        ...

    def close(self) -> None:
        """Give all memory back."""
        ...
