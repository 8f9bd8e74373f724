"""Python entries as executables: functions and modules, on CPU or CUDA tensors."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from kopt.errors import CandidateError
from kopt.model.values import (
    CallClaim,
    CallSpec,
    DictValue,
    ListValue,
    OutputClaim,
    ScalarValue,
    TensorRef,
)  # fmt: skip
from kopt.model.verification import Status
from kopt_torch.device_clock import behind_pause
from kopt_torch.modules import ModuleCopies
from kopt_torch.origin import observe, start_tracing
from kopt_torch.structure import flatten
from kopt_torch.tensors import NAMES, OpenTensors
from kopt_torch.timeline import trace

if TYPE_CHECKING:
    from kopt.model.evaluation import Build
    from kopt.model.executable import BoundCall, Memory
    from kopt.model.origin import Origin
    from kopt.model.probe import Timeline
    from kopt.model.values import NamedValue, Value


class PythonExecutable:
    """An entry that takes and returns tensors; see kopt.model.executable.Executable."""

    timeable = True

    def __init__(self, build: Build, entry: Any, knobs: Mapping[str, Any]) -> None:
        self.build = build
        self._entry = entry
        self._knobs = dict(knobs)
        self._opened: OpenTensors | None = None
        self._queue_ms = 0.05
        """Host time to queue one launch, as last seen."""
        self._most_queued = _MOST_QUEUED
        """Launches that the device's queue has held so far while it paused."""

    def bind(self, call: CallSpec, memory: Memory) -> BoundCall:
        """Open the tensors and make the callable; a module class is instantiated here."""
        if self._opened is None:
            self._opened = OpenTensors(memory)
        with _as_candidate_error():
            return PythonCall(self, call, self._opened)

    def callable_for(self, call: CallSpec, opened: OpenTensors) -> Callable[[], Any]:
        """Return a function of no arguments that performs one call."""
        arguments = [_value(a.value, opened) for a in call.arguments if not a.keyword]
        keywords = {a.name: _value(a.value, opened) for a in call.arguments if a.keyword}
        state = {name: _value(value, opened) for name, value in call.state.items()}
        entry = self._entry
        if inspect.isclass(entry) or isinstance(entry, ModuleCopies):
            target: Any = _instantiate(entry, call.init, state, opened)
        else:
            target = entry
            keywords |= _state_keywords(entry, state) | _accepted(entry, self._knobs)
        return lambda: target(*arguments, **keywords)

    def after_launch(self) -> None:
        """Look at what the first launch compiled (for subclasses)."""

    def forget(self, segments: list[int]) -> None:
        """Let go of judge-owned memory that is about to be given back."""
        if self._opened is not None:
            self._opened.close(segments)

    def fetch(self, segments: list[int]) -> None:
        """Take the judge's content of memory that this process has a copy of."""
        if self._opened is not None:
            self._opened.fetch(segments)

    def store(self, segments: list[int]) -> None:
        """Hand the content of such memory over, once the device has finished."""
        if self._opened is not None:
            self.synchronize()
            self._opened.store(segments)

    def trim(self) -> None:
        """Give cached device memory back, for the benefit of other processes."""
        if _on_gpu():
            torch.cuda.empty_cache()

    def synchronize(self) -> None:
        """Wait for the device."""
        if _on_gpu():
            with _as_candidate_error():
                torch.cuda.synchronize()

    def start_tracer(self) -> None:
        """Have CUPTI loaded, which takes seconds; a CPU's observers need nothing."""
        if _on_gpu():
            with _as_candidate_error():
                start_tracing()

    def origin(self, bound: BoundCall) -> Origin:
        """Observe a call, after one that compiles whatever it needs."""
        bound.launch()
        self.synchronize()
        return observe(bound.launch, "cuda" if _on_gpu() else "cpu")

    def timeline(self, bound: BoundCall, calls: int) -> Timeline | None:
        """Trace the kernels of warm calls; None on a CPU. See kopt_torch.timeline.trace."""
        if not _on_gpu():
            return None
        with _as_candidate_error():
            return trace(bound.launch, self.synchronize, calls)

    def device_ms(self, calls: list[BoundCall], launches: int) -> float | None:
        """Time a block of back-to-back launches with events.

        The device idles first, for as long as the host needs to queue the launches: so what is
        timed is the device's work, not the host's launching.
        """
        if not torch.cuda.is_available():
            return None
        steps = [call.launch for call in calls]
        total, done = 0.0, 0
        with _as_candidate_error():
            while done < launches:
                count = min(self._most_queued, launches - done)
                part_ms = self._part_ms(steps, done, count)
                if part_ms is not None:
                    total, done = total + part_ms, done + count
        return total

    def _part_ms(self, steps: list[Callable[[], None]], first: int, count: int) -> float | None:
        """Time some launches behind a pause; None where the device's queue does not hold them.

        It holds a number of kernels, and a call may start several: then the host waits for the
        pause to end, however long that is, and fewer launches have to be timed together.
        """
        pause_ms = max(_LEAST_PAUSE_MS, 1.5 * self._queue_ms * count)
        for _ in range(_TRIES):
            pause_ms = min(pause_ms, _MOST_PAUSE_MS)
            part_ms, queued_ms, held = behind_pause(steps, first, count, pause_ms)
            if held:
                self._queue_ms = queued_ms / count
                return part_ms
            pause_ms = 1.5 * queued_ms
        if count == 1:  # it waits for the device itself: its host time is part of what it costs
            return part_ms
        self._most_queued = count // 2
        return None


def _on_gpu() -> bool:
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())


_LEAST_PAUSE_MS = 0.5
_MOST_PAUSE_MS = 1000.0
"""Where the host needs longer, fewer launches are queued behind a pause."""
_TRIES = 2
_MOST_QUEUED = 256
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class PythonCall:
    """One bound call of a Python entry."""

    def __init__(self, executable: PythonExecutable, call: CallSpec, opened: OpenTensors) -> None:
        self._executable = executable
        self._call = call
        self._outputs = [opened.open(ref) for ref in call.outputs]
        self._step = executable.callable_for(call, opened)
        self._result: Any = None
        self._launched = False

    def launch(self) -> None:
        """Call the entry."""
        with torch.no_grad(), _as_candidate_error():
            self._result = self._step()
        if not self._launched:
            self._launched = True
            self._executable.after_launch()

    def collect(self) -> CallClaim:
        """Copy the last results into the judge's outputs where structure and shapes allow it."""
        result, self._result = self._result, None
        leaves, structure = flatten(result)
        if lazy := [leaf for leaf in leaves if type(leaf) not in _PLAIN]:
            # A subclass may do its work when it is looked at, after the clock has stopped.
            leaves, structure = [], f"other:{type(lazy[0]).__name__}"
        claims = tuple(
            OutputClaim(
                dtype=NAMES.get(leaf.dtype, str(leaf.dtype)), shape=tuple(leaf.shape),
                device=leaf.device.type,
            )
            for leaf in leaves
        )  # fmt: skip
        if len(leaves) == len(self._outputs):
            for leaf, output in zip(leaves, self._outputs, strict=True):
                if (leaf.shape, leaf.dtype, leaf.device.type) == (
                    output.shape, output.dtype, output.device.type,
                ):  # fmt: skip
                    with torch.no_grad(), _as_candidate_error():
                        output.copy_(leaf)
            self._executable.synchronize()
        return CallClaim(structure=structure, outputs=claims)

    def drop(self) -> None:
        """Let go of the last results."""
        self._result = None


def _value(value: Value, opened: OpenTensors) -> Any:
    match value:
        case TensorRef():
            return opened.open(value)
        case ScalarValue():
            return value.value
        case ListValue():
            items = [_value(item, opened) for item in value.items]
            return items if value.type == "list" else tuple(items)
        case DictValue():
            return {name: _value(item, opened) for name, item in value.items.items()}


def _instantiate(
    entry: Any, init: tuple[NamedValue, ...], state: dict[str, Any], opened: OpenTensors
) -> Any:
    arguments = [_value(a.value, opened) for a in init if not a.keyword]
    keywords = {a.name: _value(a.value, opened) for a in init if a.keyword}
    device = next(iter(state.values())).device if state else None
    module = _constructed(entry, arguments, keywords, device)
    if isinstance(module, torch.nn.Module) and device is not None:
        module = module.to(device)
        try:
            module.load_state_dict(state)
        except RuntimeError as error:
            raise CandidateError(
                Status.LAUNCH_FAILED, f"the reference's parameters do not fit it: {error}"
            ) from error
    return module.eval() if isinstance(module, torch.nn.Module) else module


def _constructed(
    entry: Any, arguments: list[Any], keywords: dict[str, Any], device: torch.device | None
) -> Any:
    """Construct a module where its parameters will be: a CPU fills a thousand million in 10 s."""
    if device is None or device.type == "cpu" or isinstance(entry, ModuleCopies):
        return entry(*arguments, **keywords)
    try:
        with torch.device(device):
            return entry(*arguments, **keywords)
    except Exception:  # noqa: BLE001 - one that looks at its tensors with NumPy, say
        return entry(*arguments, **keywords)


def _state_keywords(entry: Any, state: dict[str, Any]) -> dict[str, Any]:
    return _accepted(entry, {name.replace(".", "_"): value for name, value in state.items()})


def _accepted(entry: Any, offered: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of ``offered`` the function has parameters for."""
    if not offered:
        return {}
    parameters = inspect.signature(entry).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return dict(offered)
    return {name: value for name, value in offered.items() if name in parameters}


_CUDA_FAULTS = (
    ("illegal memory access", Status.ILLEGAL_ACCESS),
    ("misaligned address", Status.ILLEGAL_ACCESS),
    ("out of memory", Status.OOM),
    ("out of resource", Status.OOM),
    ("can't allocate memory", Status.OOM),
)


class _as_candidate_error(contextlib.AbstractContextManager[None]):
    """Turn exceptions of candidate code into CandidateError with a status."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, CandidateError):
            return
        if isinstance(error, MemoryError):
            raise CandidateError(Status.OOM, f"MemoryError: {error}") from error
        text = f"{type(error).__name__}: {error}"
        lowered = text.lower()
        for words, status in _CUDA_FAULTS:
            if words in lowered:
                raise CandidateError(status, text[:2000]) from error
        raise CandidateError(Status.LAUNCH_FAILED, text[:2000]) from error


as_candidate_error = _as_candidate_error
