"""What a backend makes of a candidate: something that binds to memory and launches."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, runtime_checkable

from kopt.model.device import Device
from kopt.model.evaluation import Build
from kopt.model.values import CallClaim, CallSpec, TensorRef


class Memory(Protocol):
    """The judge's shared memory as a candidate process sees it."""

    private: bool
    """Device tensors are to be copied into memory of their own, so that a sanitizer knows their bounds."""

    def buffer(self, ref: TensorRef) -> memoryview:
        """Return the writable bytes of a CPU tensor (from its first to its last element)."""
        ...

    def address(self, ref: TensorRef) -> int:
        """Return the address of a CPU tensor's first element."""
        ...

    def copied(self, segment: int) -> tuple[memoryview, str] | None:
        """Return a segment's bytes on the host and its device, where no driver shares its memory.

        An executable then has memory of its own there, ``fetch(segments: list[int])`` and ``store``
        to copy it from and to these bytes, which are called before and after calls. None: open it
        by its handle.
        """
        ...

    def handle(self, segment: int) -> tuple[object, ...]:
        """Return the CUDA IPC handle of a segment, as announced by the judge."""
        ...


class BoundCall(Protocol):
    """One candidate bound to one set of arguments and outputs.

    It may also have ``drop() -> None``: let go of what the last launch gave, which nobody will
    collect. It is called where results that are kept could take the memory of others.
    """

    def launch(self) -> None:
        """Start one call; on a GPU it need not have finished on return. This is what is timed."""
        ...

    def collect(self) -> CallClaim:
        """Wait, put the last launch's results into the judge's outputs, and describe them.

        Where structure, shape or dtype differ from what is asked for, nothing is copied.
        """
        ...


class DeviceTurns(Protocol):
    """Who may use the device: others measure on it while nobody works there."""

    def working(self) -> AbstractContextManager[object]:
        """Use the device beside other work; nothing is measured meanwhile. May be entered again."""
        ...

    def resting(self) -> AbstractContextManager[None]:
        """Let measurements through, in the midst of work, while something else takes its time."""
        ...

    def make_way(self) -> None:
        """Let who waits to measure go first, where work has gone on for a while; else nothing."""
        ...

    def exclusive(self) -> AbstractContextManager[object]:
        """Have the device alone, to measure. Raises RuntimeError in the midst of work."""
        ...


@runtime_checkable
class Executable(Protocol):
    """A built candidate, in a candidate process.

    It may also have ``origin(bound: BoundCall) -> Origin`` (kopt.model.origin): run a bound call
    under observation and say whose compute it used. Without it the origin stage is not run.

    It may also have ``start_tracer() -> None``: load what observing and tracing take, seconds for
    a process's first time; nothing runs on the device. Without it they take so much longer.

    It may also have ``sanitize(bound: BoundCall) -> SanitizerReport`` (kopt.model.sanitizer): run a
    bound call in an instrumented build, within SANITIZER_SECONDS, and say what its tools found and
    which of them were not run, and why. It changes neither inputs nor outputs, and raises nothing
    for what the candidate does there. Without it the sanitizer stage is not run.

    It may also have ``timeline(bound: BoundCall, calls: int) -> Timeline | None`` (kopt.model.probe):
    trace the kernels of warm calls, with their times; None where this device has no tracer. Without
    it no kernel is timed on its own.

    It may also have ``first_launch(bound: BoundCall, turns: DeviceTurns) -> None``: launch a bound
    call for the first time and wait for it, with the device in turns: it is let go of while the
    launch compiles. Raises CandidateError. Without it, what compiles at its first launch has the
    device to itself meanwhile.

    It may also have ``ahead_of_time(call: CallSpec) -> list[Record]``: compile what a call would
    launch for the context's architecture, from shapes alone, and return what each kernel uses:
    ``name``, ``registers``, ``spill_bytes``, ``shared_bytes``, ``limits_exceeded`` and whatever
    else it knows. Raises CandidateError where a kernel does not compile or does not fit; those
    that were compiled are then in ``build.resources["kernels"]``, with what they exceed. Without it
    nothing is compiled for a named target.

    It may also have ``listing(kind: str, call: CallSpec) -> dict[str, str]``, with
    ``listing_kinds: tuple[str, ...]``, as ``("ptx", "sass")``: what the compiler made of what a
    call would launch, name to text, for a kernel that exceeds a limit too. Raises CandidateError
    (UNSUPPORTED) where a tool is missing. Nothing runs. Without it there is nothing to dump.
    """

    build: Build

    def bind(self, call: CallSpec, memory: Memory) -> BoundCall:
        """Prepare a call; slow work (views, handles, set-up) belongs here. Raises CandidateError."""
        ...

    def synchronize(self) -> None:
        """Wait until every launch has finished. Raises CandidateError for a device fault."""
        ...

    def device_ms(self, calls: list[BoundCall], launches: int) -> float | None:
        """Run ``launches`` calls in rotation and return their device time in ms.

        None where the device has no clock of its own (a CPU): the judge's clock is used then.
        """
        ...


class BuildContext(Protocol):
    """Where and for what a backend builds."""

    device: Device | None
    """None: build ahead of time for ``architecture`` only."""
    architecture: str
    """As ``sm_90`` or ``native``."""
    argument_names: tuple[str, ...]
    """Arguments of the reference, then its parameters and buffers, in order."""

    def cached(self, key: str) -> Path | None:
        """Return the folder of an earlier build of ``key`` whose files are intact, or None."""
        ...

    def keep(self, key: str, folder: Path) -> Path:
        """Move a finished build into the cache, atomically, and return where it lies."""
        ...

    def scratch(self) -> Path:
        """Return a new empty folder for building in."""
        ...
