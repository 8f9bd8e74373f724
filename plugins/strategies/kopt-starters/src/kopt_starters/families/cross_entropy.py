"""Cross-entropy of logits with one class each, in Triton and CUDA C++: one read of the logits."""

from __future__ import annotations

from string import Template
from typing import TYPE_CHECKING, NamedTuple

from kopt_starters import cuda
from kopt_starters.cuda_rows import shared_row_knobs
from kopt_starters.families.filling import FLOATS, filled, filled_cuda, powers
from kopt_starters.gpu import nearest
from kopt_starters.graph import Value
from kopt_starters.rendering import commented, cuda_places, identifier, part

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kopt.model.candidate import Candidate, Knob
    from kopt.model.device import Device, Target
    from kopt_starters.graph import Graph

_REDUCTIONS = ("none", "mean", "sum")
"""By the number that PyTorch's operator is given."""
_TILE = 16384
"""Logits that one program keeps in registers."""
_IDEA = "cross-entropy: one read, running maximum and sum"


class Loss(NamedTuple):
    """A cross-entropy: logits of shape rows x classes, and a class for each row."""

    x: Value
    target: Value
    reduction: str
    ignored: int
    """The class of rows that do not count."""


class CrossEntropy:
    """Kernels for a reference that is the cross-entropy of its arguments."""

    name = "cross_entropy"

    def propose(self, graph: Graph, target: Target) -> Iterable[Candidate]:
        """Return the kernel for a cross-entropy; empty for any other graph."""
        loss = recognised(graph)
        if loss is None or target.language not in ("triton", "cuda"):
            return []
        if target.language == "cuda":
            kernel = _cuda(graph, loss, target.device)
        else:
            kernel = filled(
                "cross_entropy_rows.py.txt", graph, "cross_entropy", _IDEA,
                [loss.x.name, loss.target.name], _knobs(loss), ignored=loss.ignored,
                reduction=loss.reduction,
            )  # fmt: skip
        return [kernel] if kernel is not None else []


def _cuda(graph: Graph, loss: Loss, device: Device) -> Candidate | None:
    x, labels = identifier(loss.x.name), identifier(loss.target.name)
    rows, classes = loss.x.shape
    element = cuda.ELEMENTS[loss.x.dtype]
    piece = cuda.piece_of(element.size, classes)
    knobs = shared_row_knobs(classes, rows, element.size, device)
    each = loss.reduction == "none"
    blocks = f"cdiv({x}.shape[0], ROWS)"
    given = [x, labels, "out" if each else "partial", f"{x}.shape[0]", f"{x}.shape[1] // {piece}"]
    plan = [] if each else cuda.scratch("partial", f"2 * {blocks}")
    plan += cuda.launch("losses", [blocks], ["LANES", "ROWS"], given)
    if not each:
        plan += cuda.launch("reduce", [1], [1024], ["partial", "out", blocks])
    requires = [f"{labels}.shape[0] == {x}.shape[0]", f"{x}.shape[1] % {piece} == 0"]
    ending = Template(part(f"cross_entropy_{'each' if each else 'block'}.cu"))
    places = {
        **cuda_places(loss.x.dtype, piece, requires, knobs),
        "plan": commented(plan),
        "running": part("softmax_running.cu"),
        "written": element.type if each else "float2",
        "ignored": str(loss.ignored),
        "ending": ending.substitute(
            reduced="all.x / all.y" if loss.reduction == "mean" else "all.x"
        ),
    }
    return filled_cuda("cross_entropy_rows.cu", graph, _IDEA, knobs, places)


def recognised(graph: Graph) -> Loss | None:
    """Return the cross-entropy that a graph is; None where it is none, or has class weights."""
    if len(graph.nodes) != 2 or graph.result is None:
        return None
    softmax, nll = graph.nodes
    if (softmax.operator, nll.operator) != ("_log_softmax", "nll_loss_forward"):
        return None
    x, target = softmax.given[0], nll.argument(1, "target")
    if not isinstance(x, Value) or not isinstance(target, Value) or x.dtype not in FLOATS:
        return None
    classes = len(x.shape) == 2 and softmax.argument(1, "dim") in (1, -1) and x.elements > 0
    chained = nll.given[0] == softmax.output and graph.result == nll.output
    plain = nll.argument(2, "weight") is None and softmax.output.dtype == x.dtype
    labels = target.dtype == "int64" and target.shape == x.shape[:1]
    reduction, ignored = nll.argument(3, "reduction"), nll.argument(4, "ignore_index")
    if not (classes and chained and plain and labels) or not isinstance(ignored, int):
        return None
    if not isinstance(reduction, int) or not 0 <= reduction < len(_REDUCTIONS):
        return None
    return Loss(x, target, _REDUCTIONS[reduction], ignored)


def _knobs(loss: Loss) -> dict[str, Knob]:
    whole = max(16, 1 << (loss.x.shape[1] - 1).bit_length())
    blocks = [block for block in (1024, 2048, 4096, 8192) if block < whole]
    blocks += [whole] if whole <= _TILE else []
    block = nearest(whole if whole <= 8192 else 4096, blocks)
    width = int(block.default)
    # Four reads of 16 bytes for each thread.
    warps = max(1, min(16, width // (512 if loss.x.dtype == "float32" else 1024)))
    return {
        "ROWS": nearest(max(1, 1024 // width), powers(1, max(1, min(64, 2048 // width)))),
        "BLOCK": block,
        "STAGES": nearest(2 if width < whole else 1, [1, 2, 3]),
        "num_warps": nearest(warps, [w for w in (1, 2, 4, 8, 16, 32) if w <= max(4, 2 * warps)]),
    }
