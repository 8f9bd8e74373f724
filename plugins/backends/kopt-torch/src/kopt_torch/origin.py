"""Which of PyTorch's operators one call runs.

Everything is bound when this module is imported, before a candidate exists. On a CPU two observers
look at the same call, because each has a blind side: a dispatch mode sees this thread only, and the
profiler, which sees every thread and the inside of custom operators, can be paused.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kopt.model.origin import KernelUse, OperatorUse, Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

COMPILED = "Torch-Compiled Region"
"""The name under which a region of torch.compile is reported."""
_MODE = "PythonDispatchMode"
_MOVE_NAMES = """
    alias arange as_strided broadcast_tensors broadcast_to cat chunk clone concat concatenate
    conj constant_pad_nd contiguous copy copy_ data detach detach_ diagonal efficientzerotensor
    empty empty_like empty_permuted empty_strided equal_metadata expand expand_as eye fill fill_
    flatten full full_like has_compatible_shallow_copy_type hsplit hstack is_nonzero is_pinned
    is_same_size item lift_fresh local_scalar_dense mH mT moveaxis movedim narrow
    nested_tensor_size new_empty new_empty_strided new_full new_ones new_zeros numpy_T ones
    ones_like pad permute pin_memory ravel record_stream reinterpret_tensor repeat reshape
    reshape_alias reshape_as resize resize_ resolve_conj resolve_neg result_type scalar_tensor
    select set_ slice split split_with_sizes squeeze squeeze_ stack swapaxes swapdims t t_
    tensor_split to to_copy transpose transpose_ type_as unbind unflatten unfold unsafe_chunk
    unsafe_split unsafe_view unsqueeze unsqueeze_ view view_as view_as_complex view_as_real
    vsplit vstack zero zero_ zeros zeros_like
"""
_MOVES = frozenset(_MOVE_NAMES.split())
"""Operators that allocate, view, fill or copy, without leading underscores."""


def _known_operators() -> frozenset[str]:
    names: Iterable[str] = torch._C._dispatch_get_all_op_names()
    return frozenset(name.partition(".")[0] for name in names)


_KNOWN = _known_operators()
"""The framework's operators: whatever is registered later is a candidate's own."""


def _every_thread() -> _ExperimentalConfig | None:
    """Return the profiler's setting for it; None where this version of PyTorch has none."""
    try:
        return _ExperimentalConfig(profile_all_threads=True)
    except TypeError:
        return None


_EVERY_THREAD = _every_thread()


def moves_only(name: str) -> bool:
    """Return whether an operator (as ``aten::copy_``) only allocates, views, fills or copies."""
    return name.rpartition("::")[2].lstrip("_") in _MOVES


class _Recorder(TorchDispatchMode):
    """Notes the elements that every operator of this thread touches."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: dict[str, int] = defaultdict(int)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name
        if name in _KNOWN:
            leaves = tree_leaves((args, kwargs, result))
            self.elements[name] += sum(
                leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor)
            )
        return result


def start_tracing() -> None:
    """Trace nothing on CUDA: a process's first trace takes seconds, its later ones do not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with profile(activities=[ProfilerActivity.CUDA]):
            pass


def observe(step: Callable[[], Any], device: str) -> Origin:
    """Run one call and return what it used; ``device`` is ``cpu`` or ``cuda``.

    The call should have run before: a first one also compiles and tunes. On CUDA the dispatcher is
    asked for operators and CUPTI for kernels; a process's first trace takes seconds (see
    ``start_tracing``), and later launches of that process may be slower.
    """
    recorder = _Recorder()
    events: list[Any] = []
    kernels: tuple[KernelUse, ...] = ()
    if device == "cuda":
        # Without ProfilerActivity.CPU: the first profile of a process takes seconds as it is.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that events of other profiles are not kept
            with profile(activities=[ProfilerActivity.CUDA]) as profiler, torch.no_grad(), recorder:
                step()
                torch.cuda.synchronize()
        kernels = _kernels(profiler.events() or ())
    else:
        with (
            profile(
                activities=[ProfilerActivity.CPU], record_shapes=True,
                experimental_config=_EVERY_THREAD,
            ) as profiler,
            torch.no_grad(),
            recorder,
        ):  # fmt: skip
            step()
        events = list(profiler.events() or ())
    elements = dict(recorder.elements)
    for name, count in _unrecorded(events).items():
        elements[name] = elements.get(name, 0) + count
    operators = tuple(
        OperatorUse(name=name, elements=count, moves_only=moves_only(name))
        for name, count in sorted(elements.items(), key=lambda item: -item[1])
    )
    return Origin(operators=operators, kernels=kernels)


def _kernels(events: Iterable[Any]) -> tuple[KernelUse, ...]:
    """Return what ran on the device, whoever launched it, by name; copies and fills too."""
    found: dict[str, float] = defaultdict(float)
    for event in events:
        if event.device_type == DeviceType.CUDA:
            found[event.name] += event.self_device_time_total / 1e3
    return tuple(
        KernelUse(name=name, device_ms=spent)
        for name, spent in sorted(found.items(), key=lambda item: -item[1])
    )


def _unrecorded(events: list[Any]) -> dict[str, int]:
    """Return what the profiler saw and the dispatch mode did not.

    Only the outermost operators count, and of those only what did not pass through the mode.
    """
    recorded: set[int] = set()
    for event in events:
        if event.name == _MODE:
            recorded |= {id(each) for each in _above(event)}
    found: dict[str, int] = defaultdict(int)
    for event in events:
        if event.device_type != DeviceType.CPU or id(event) in recorded:
            continue
        if event.name.startswith(COMPILED):
            found[COMPILED] += _touched(event)
        elif event.name in _KNOWN and not any(map(_counts, _above(event))):
            found[event.name] += _touched(event)
    return found


def _counts(event: Any) -> bool:
    return event.name in _KNOWN or event.name.startswith(COMPILED)


def _above(event: Any) -> Iterable[Any]:
    while event.cpu_parent is not None:
        event = event.cpu_parent
        yield event


def _touched(event: Any) -> int:
    """Return the elements of an event's inputs, or of what runs inside it where that is more.

    The profiler gives neither outputs nor the shapes of tensors in a list.
    """
    inside = sum(_touched(child) for child in event.cpu_children)
    return max(inside, sum(_size(shape) for shape in event.input_shapes or ()))


def _size(shape: Any) -> int:
    if not isinstance(shape, list | tuple) or not shape:
        return 0
    if all(isinstance(item, int) for item in shape):
        return math.prod(shape)
    return sum(_size(item) for item in shape)
