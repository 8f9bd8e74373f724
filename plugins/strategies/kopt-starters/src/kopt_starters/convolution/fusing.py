"""How a convolution's kernel stores its result, with what follows it in the graph computed first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kopt_starters.codegen.epilogue import epilogue
from kopt_starters.codegen.launcher import tensor_checks
from kopt_starters.codegen.leading import Leading

if TYPE_CHECKING:
    from kopt_starters.codegen.epilogue import Epilogue
    from kopt_starters.convolution.task import Convolution
    from kopt_starters.graph import Graph

_PLAIN = {
    "product": """\
    target = out + out_image * (GROUPS * COUT * area)
    at = out_channel * area + (out_d * EXTENT[1] + out_h) * EXTENT[2] + out_w
    target = _along_pixels(target, at, clear)
    tl.store(target, total.to(out.dtype.element_ty), mask=mask)""",
    "lanes": """\
        target = out + image.to(tl.int64) * (EXTENT[0] * EXTENT[1] * EXTENT[2])
        at = (depth * EXTENT[1] + first + row) * EXTENT[2] + column
        tl.store(target + at, total.to(out.dtype.element_ty), mask=mask)""",
}


@dataclass(frozen=True)
class Ending:
    """What a template leaves open at its end, and what the entry hands on for it."""

    store: dict[str, str]
    """Lines by kind of template: ``product`` (a tile of channels x pixels), ``lanes``."""
    parameters: tuple[str, ...] = ()
    """Of the kernel, in addition to its own."""
    handed: tuple[str, ...] = ()
    """Expressions of the entry for them."""
    result: str = "None"
    """Shape and dtype of the result as an expression; ``None`` where they are the convolution's."""
    helpers: str = ""
    """Functions that the lines call."""
    guards: tuple[str, ...] = ()
    """Lines of the entry that refuse shapes which the lines do not hold for."""


PLAIN = Ending(_PLAIN)
"""The result is stored as it is; holds for all shapes."""


def ending(graph: Graph, task: Convolution, *before: Convolution) -> Ending | None:
    """Return how the convolution's kernel ends; None where it cannot do all that follows.

    ``before`` are those that made its input.
    """
    if graph.result == task.output:
        return PLAIN
    tail = epilogue(graph, task.output)
    if tail is None:
        return None
    pointers = tail.parameters
    stores = {
        "product": _lines(task, tail, 4, "out_channel * 0 + out_w * 0"),
        "lanes": _lines(task, tail, 8, "out_w * 0"),
    }
    read = [tensor for each in (*before, task) for tensor in each.tensors[1:]]
    leading = tail.leading([(*before, task)[0].x], read)
    return Ending(
        store=stores,
        parameters=(*pointers, *tail.scalars),
        handed=(*(f"{name}.contiguous()" for name in pointers.values()), *tail.scalars),
        result=f"({Leading.shape(leading, tail.result.shape)}, torch.{tail.result.dtype})",
        helpers=tail.helpers(list(stores.values())).strip(),
        guards=tuple(tensor_checks(graph, leading)),
    )


def _lines(task: Convolution, tail: Epilogue, indent: int, spread: str) -> str:
    """Return the lines that compute and store; every coordinate is inside, for masked lanes too."""
    dims = len(task.output.shape) - 2
    places = ["out_d", "out_h", "out_w"][3 - dims :]
    coordinates = ["out_image", "out_channel", *places]
    if indent == 8:
        # A lane's own coordinates are vectors, those of its program are not.
        coordinates = [f"({name} + out_w * 0)" for name in coordinates]
    lines, found = tail.lines("total", coordinates)
    at = f"({tail.offset(coordinates)}) + {spread}"
    where = f"_along_pixels(out, {at}, clear)" if indent == 4 else f"out + {at}"
    lines = [*lines, f"tl.store({where}, {found}.to(out.dtype.element_ty), mask=mask)"]
    return "\n".join(f"{' ' * indent}{line}" for line in lines)
