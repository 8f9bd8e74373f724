"""Convolutions by the vendor's library: in its favourite layout, by phases, and with taps folded."""

from __future__ import annotations

from math import gcd, prod
from typing import TYPE_CHECKING

from kopt.model.candidate import Knob
from kopt_starters.codegen import epilogue
from kopt_starters.codegen.launcher import checks
from kopt_starters.codegen.leading import Leading
from kopt_starters.codegen.writer import identifier
from kopt_starters.convolution.task import convolution_of
from kopt_starters.vendor.rendering import handed, stored, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kopt.model.candidate import Candidate
    from kopt_starters.codegen import Epilogue
    from kopt_starters.convolution.task import Convolution
    from kopt_starters.graph import Graph, Value

_PLACES = ("out_d", "out_h", "out_w")
_MOST_WASTE = 3.0
"""Of the multiplications of all phases as one convolution, over those that are needed."""
_FEW_CHANNELS = 8
"""So few leave a tensor core's depth unfilled: taps are laid beside them."""
_DEEP = 48
"""As deep as that, by default, taps and channels are laid side by side: more is more to move."""
_DEEPEST = 128
_WHOLE_BYTES = 32
"""Tensor cores are fed best with a depth of a multiple of this."""


def convolutions(graph: Graph) -> Iterator[Candidate | None]:
    """Yield candidates for a graph of one convolution of arguments and what follows by element.

    Raises NotCoveredError where an argument is no tensor and no number.
    """
    found = [node for node in graph.nodes if node.operator == "convolution"]
    task = convolution_of(found[0], graph.call.tf32) if len(found) == 1 else None
    if task is None or any(graph.producer(tensor) for tensor in task.tensors) or _tiny(task):
        return
    tail = None if graph.result == task.output else epilogue(graph, task.output)
    if tail is None and graph.result != task.output:
        return
    if not task.transposed or _waste(task) <= _MOST_WASTE:
        yield _candidate(graph, task, tail, "packed", _packed_knobs(task))
    if _flat(task):
        yield _candidate(graph, task, tail, "columns", _columns_knobs(task, tail))
    if task.transposed or tail is not None:
        yield _candidate(graph, task, tail, "dense", _dense_knobs(task))


def _tiny(task: Convolution) -> bool:
    """Whether each channel has next to nothing to multiply, which no library is fast at."""
    return task.groups > 1 and task.cin <= 2 and task.cout <= 2


def _flat(task: Convolution) -> bool:
    """Whether few channels make a product of it whose columns are not much more than its results."""
    few = task.cin <= _FEW_CHANNELS and task.cin * task.taps <= 1.5 * task.cout
    return few and task.taps > 1 and task.groups == 1 and not task.transposed


def _waste(task: Convolution) -> float:
    """Return how many times the multiplications needed the phases as one convolution have."""
    return prod(n * t / k for n, t, k in zip(_phases(task), _taps(task), task.kernel, strict=True))


def _apart(task: Convolution) -> list[int]:
    """Return how far apart the taps of a phase are, for each dimension; 1 where there are none."""
    if not task.transposed:
        return [1, 1, 1]
    return [s // gcd(s, d) for s, d in zip(task.stride, task.dilation, strict=True)]


def _phases(task: Convolution) -> list[int]:
    """Return how many of a transposed convolution's phases have taps, for each dimension."""
    return [min(apart, k) for apart, k in zip(_apart(task), task.kernel, strict=True)]


def _taps(task: Convolution) -> list[int]:
    """Return the taps of each dimension, of a phase where the convolution is transposed."""
    return [-(-k // apart) for apart, k in zip(_apart(task), task.kernel, strict=True)]


def _tile() -> dict[str, Knob]:
    # Rows that are not aligned are stored fastest in long pieces.
    return {
        "CHANNELS": Knob(default=32, choices=(32, 64)),
        "PIXELS": Knob(default=256, choices=(128, 256)),
        "num_warps": Knob(default=8, choices=(4, 8)),
    }


def _dense_knobs(task: Convolution) -> dict[str, Knob]:
    """Return knobs; what is not transposed may also lie as it is given."""
    layout = {} if task.transposed else {"LAYOUT": Knob(default="first", choices=("first", "last"))}
    return {**layout, **_tile()}


def _columns_knobs(task: Convolution, tail: Epilogue | None) -> dict[str, Knob]:
    knobs = _exact(task)
    whole = 16 // task.itemsize
    if task.cin * task.taps % whole:
        knobs["ALIGN"] = Knob(default=whole, choices=(whole, 1))
    # Where nothing follows, the product is the result.
    return knobs | (_tile() if tail is not None or task.bias is not None else {})


def _exact(task: Convolution) -> dict[str, Knob]:
    """Return the knob that keeps float32 from TF32, where cuDNN does not use it for the reference."""
    choices = (True,) if task.tf32 is False else (True, False)
    return {"EXACT": Knob(default=True, choices=choices)} if task.kept_exact else {}


def _packed_knobs(task: Convolution) -> dict[str, Knob]:
    knobs = _exact(task)
    exact = bool(knobs)
    few = task.groups > 1 and task.cin * task.groups <= _DEEPEST
    across = task.cin * (task.groups if few else 1)
    if few:
        # One group of as many channels, most of its weights zero, is what tensor cores do best.
        knobs["GROUPED"] = Knob(default=exact, choices=(False, True))
    depths = _folds(task, across) if few or task.groups == 1 else {"none": task.cin}
    if len(depths) > 1:
        deep = max(depths, key=lambda fold: (depths[fold] <= _DEEP, depths[fold]))
        fold = deep if across <= _FEW_CHANNELS and depths[deep] <= _DEEP else "none"
        knobs["FOLD"] = Knob(default=fold, choices=tuple(depths))
    whole = _WHOLE_BYTES // task.itemsize
    if (few or task.groups == 1) and any(depth % whole for depth in depths.values()):
        wanted = whole // 2 if exact else whole
        knobs["ALIGN"] = Knob(default=wanted, choices=(whole, whole // 2, 1))
    return knobs | _tile()


def _folds(task: Convolution, across: int) -> dict[str, int]:
    """Return which dimensions' taps may be laid beside the channels, with how deep that is."""
    taps = dict(zip("dhw", _taps(task), strict=True))
    names = ("w", "hw", "dhw") if across <= _FEW_CHANNELS else ("d",)
    found = {"none": across}
    for name in names:
        depth = across * prod(taps[axis] for axis in name)
        if depth > max(found.values()) and depth <= max(_DEEPEST, 4 * across):
            found[name] = depth
    return found


def _candidate(
    graph: Graph, task: Convolution, tail: Epilogue | None, form: str, knobs: dict[str, Knob]
) -> Candidate | None:
    dims = len(task.output.shape) - 2
    coordinates = ["out_image", "out_channel", *_PLACES[3 - dims :]]
    plain = "out_image * (channels * pixels) + (channel * pixels + pixel)"
    ending = stored(tail, coordinates, plain, " + out_channel * 0 + out_w * 0")
    settings: dict[str, object] = {
        name: getattr(task, name)
        for name in ("stride", "padding", "dilation", "extra", "groups", "transposed")
    }
    leading = tail.leading([task.x], task.tensors[1:]) if tail else None
    result = "None"
    if tail is not None:
        result = f"({Leading.shape(leading, tail.result.shape)}, torch.{tail.result.dtype})"
    settings |= {"result": result, "more": handed(tail)}
    settings |= {"packed": {"FOLD": '"none"'}, "dense": {"LAYOUT": '"last"'}}.get(form, {})
    settings |= {name: knob.default for name, knob in _tile().items()}
    settings |= {name: name for name in knobs}
    tensors = ", ".join(_named(value) for value in (task.x, task.weight, task.bias))
    passed = ", ".join(f"{name}={value}" for name, value in settings.items())
    # What follows is written for these shapes; the convolution itself holds for any.
    alike = [] if tail else [task.x]
    guards = checks(graph, tail.scalars.values() if tail else (), alike=alike, leading=leading)
    body = [*guards, f"return _vendor({tensors}, {passed})"]
    idea = f"vendor: {_how(task, form)}{', what follows fused' if tail else ''}"
    return write(graph, ["common", form], tail, ending, body, knobs, idea)


def _how(task: Convolution, form: str) -> str:
    """Return in words what the library is given."""
    what = "transposed convolution" if task.transposed else "convolution"
    if form == "columns":
        return f"{what} as a product in cuBLAS, places as columns"
    if form == "dense":
        return f"{what} in cuDNN between moves of our own"
    if not task.transposed:
        return f"{what} in cuDNN, channels last between moves of our own"
    phases = max(task.stride) > 1
    return f"{what} {'by phases, as one dense' if phases else 'as an ordinary'} one in cuDNN"


def _named(value: Value | None) -> str:
    return "None" if value is None else identifier(value.name)
