"""Convolutions over one to three dimensions: dense, grouped, depthwise, separable, transposed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt_starters.convolution import channels_last, knobs
from kopt_starters.convolution.fusing import PLAIN, ending
from kopt_starters.convolution.rendering import call, ends, geometry, identifier, same, write
from kopt_starters.convolution.task import convolution_of
from kopt_starters.families.convolution_cuda import channels_kernel
from kopt_starters.families.convolution_warpgroups import warpgroups_kernel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kopt.model.candidate import Candidate, Knob
    from kopt.model.device import Device, Target
    from kopt_starters.convolution.fusing import Ending
    from kopt_starters.convolution.task import Convolution, Three
    from kopt_starters.graph import Graph

_PHASES = "transposed convolution by phases, one dense convolution each"


class ConvolutionFamily:
    """Kernels for one convolution, or a depthwise and a pointwise one, and what follows by element."""

    name = "convolution"

    def propose(self, graph: Graph, target: Target) -> Iterable[Candidate]:
        """Return kernels for the whole graph; empty where there is more in it than that."""
        convolutions = [node for node in graph.nodes if node.operator == "convolution"]
        found = (convolution_of(node, graph.call.tf32) for node in convolutions)
        tasks = [task for task in found if task is not None]
        if target.language not in ("triton", "cuda") or target.device.kind != "cuda":
            return []
        if not tasks or len(tasks) < len(convolutions):
            return []
        end = ending(graph, tasks[-1], *tasks[:-1])
        if end is None:
            return []
        if target.language == "cuda":
            alone = len(tasks) == 1 and end is PLAIN and _of_arguments(graph, tasks[0])
            makers = (warpgroups_kernel, channels_kernel) if alone else ()
            kernels = (make(graph, tasks[0], target.device) for make in makers)
            return [kernel for kernel in kernels if kernel is not None]
        if len(tasks) == 1 and _of_arguments(graph, tasks[0]):
            proposals = _single(graph, tasks[0], end, target.device)
        elif len(tasks) == 2 and _chained(graph, tasks[0], tasks[1]):
            proposals = _pair(graph, tasks[0], tasks[1], end, target.device)
        else:
            return []
        return [candidate for candidate in proposals if candidate is not None]


def _of_arguments(graph: Graph, task: Convolution) -> bool:
    return all(graph.producer(tensor) is None for tensor in task.tensors)


def _chained(graph: Graph, deep: Convolution, point: Convolution) -> bool:
    """Return whether the second convolution, and nothing else, takes what the first one makes."""
    others = all(graph.producer(tensor) is None for tensor in point.tensors[1:])
    alone = len(graph.users(deep.output)) == 1 and deep.output not in graph.results
    return _of_arguments(graph, deep) and point.x == deep.output and others and alone


def _single(
    graph: Graph, task: Convolution, end: Ending, device: Device
) -> Iterator[Candidate | None]:
    x = identifier(task.x)
    if knobs.direct_suits(task):
        declared = knobs.direct_knobs(task)
        body = [f"return {_direct(task, x, end, same(declared))}"]
        idea = _idea("direct convolution, rows in registers", end)
        yield write(graph, {"direct": end}, body, declared, idea)
        return
    copied = _copied(graph, task, end, device)
    if not task.pointwise:
        yield from copied
    for flat in knobs.flattenings(task):
        declared = knobs.gemm_knobs(task, device, flat)
        body = [f"return {_gemm(task, x, end, declared, flat)}"]
        yield write(graph, {"gemm": end}, body, declared, _idea(_kind(task, flat), end))
    if task.pointwise and not knobs.light(task):
        yield from copied


def _copied(
    graph: Graph, task: Convolution, end: Ending, device: Device
) -> Iterator[Candidate | None]:
    """Propose a product over a copy of the input with channels last."""
    for fold in channels_last.foldings(task):
        pack = channels_last.packed(task, fold)
        for halves in (False, True) if channels_last.halves_suit(task, device) else (False,):
            declared = channels_last.last_knobs(
                task, device, pack, fold, plain=end is PLAIN, halves=halves
            )
            body = [f"return {_last(task, end, declared, pack, fold)}"]
            kind = _last_kind(task, fold) + (", each number as two float16s" if halves else "")
            yield write(graph, {"last": end}, body, declared, _idea(kind, end))


def _last(
    task: Convolution, end: Ending, declared: dict[str, Knob], pack: Three, fold: bool
) -> str:
    tensors = [identifier(task.x), identifier(task.weight), identifier(task.bias)]
    shape = {**geometry(task, "extra", "groups", "transposed"), "packed": pack, "fold": fold}
    return call("_last", tensors, {**shape, **ends(end), **_precise(declared)})


def _last_kind(task: Convolution, fold: bool) -> str:
    if fold:
        return "transposed convolution, channels last, all phases in one product"
    return f"{_kind(task, False).split(',')[0]}, channels last"


def _kind(task: Convolution, flat: bool) -> str:
    if task.pointwise:
        return "pointwise convolution as a product, layout as it is"
    kind = _PHASES if task.transposed and max(task.stride) > 1 else "convolution as a product"
    return f"{kind}, {'taps and channels in one' if flat else 'tap by tap'}"


def _idea(kind: str, end: Ending) -> str:
    return kind if end is PLAIN else f"{kind}, what follows in the same kernel"


def _pair(
    graph: Graph, deep: Convolution, point: Convolution, end: Ending, device: Device
) -> Iterator[Candidate | None]:
    """Propose both convolutions one after the other, and in one kernel."""
    if not knobs.fused_suits(deep, point):
        return
    if knobs.direct_suits(deep):
        first, then = knobs.direct_knobs(deep), knobs.gemm_knobs(point, device, False)
        renamed = {("DIRECT_WARPS" if n == "num_warps" else n): k for n, k in first.items()}
        passed = {**same(first), "num_warps": "DIRECT_WARPS"}
        body = [
            f"_middle = {_direct(deep, identifier(deep.x), PLAIN, passed)}",
            f"return {_gemm(point, '_middle', end, then, False)}",
        ]
        parts = {"direct": PLAIN, "gemm": end}
        idea = _idea("separable convolution, a depthwise kernel and a product", end)
        yield write(graph, parts, body, {**renamed, **then}, idea)
    declared = knobs.fused_knobs(point, device)
    tensors = [*map(identifier, (deep.x, deep.weight, deep.bias, point.weight, point.bias))]
    settings = {**geometry(deep), **ends(end), **_precise(declared)}
    body = [f"return {call('_separable', tensors, settings)}"]
    idea = _idea("separable convolution in one kernel", end)
    yield write(graph, {"separable": end}, body, declared, idea)


def _direct(task: Convolution, x: str, end: Ending, passed: dict[str, object]) -> str:
    tensors = [x, identifier(task.weight), identifier(task.bias)]
    return call("_direct", tensors, {**geometry(task, "groups"), **ends(end), **passed})


def _gemm(task: Convolution, x: str, end: Ending, declared: dict[str, Knob], flat: bool) -> str:
    tensors = [x, identifier(task.weight), identifier(task.bias)]
    shape = {**geometry(task, "extra", "groups", "transposed"), **ends(end), "flat": flat}
    return call("_gemm", tensors, {**shape, **_precise(declared)})


def _precise(declared: dict[str, Knob]) -> dict[str, object]:
    """Return knobs handed on; halves have no choice of precision."""
    return {"PRECISION": "'tf32'", **same(declared)}
