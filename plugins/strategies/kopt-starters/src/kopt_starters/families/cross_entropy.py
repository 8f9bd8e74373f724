"""Cross-entropy of logits with one class each, in Triton: one read of the logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kopt_starters.families.filling import FLOATS, choice, filled, powers
from kopt_starters.graph import Value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kopt.model.candidate import Candidate, Knob
    from kopt.model.device import Target
    from kopt_starters.graph import Graph

_REDUCTIONS = ("none", "mean", "sum")
"""By the number that PyTorch's operator is given."""
_TILE = 16384
"""Logits that one program keeps in registers."""


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
        loss = recognised(graph) if target.language == "triton" else None
        if loss is None:
            return []
        kernel = filled(
            "cross_entropy_rows.py.txt", graph, "cross_entropy",
            "cross-entropy: one read, running maximum and sum", [loss.x.name, loss.target.name],
            _knobs(loss), ignored=loss.ignored, reduction=loss.reduction,
        )  # fmt: skip
        return [kernel] if kernel is not None else []


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
    block = choice(whole if whole <= 8192 else 4096, blocks)
    width = int(block.default)
    warps = max(1, min(16, width // 512))
    return {
        "ROWS": choice(max(1, 1024 // width), powers(1, max(1, min(64, 2048 // width)))),
        "BLOCK": block,
        "STAGES": choice(2 if width < whole else 1, [1, 2, 3]),
        "num_warps": choice(warps, [w for w in (1, 2, 4, 8, 16, 32) if w <= max(4, 2 * warps)]),
    }
