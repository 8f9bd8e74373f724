"""References that are element-wise as a whole: one kernel that reads and writes everything once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kopt.model.candidate import Knob
from kopt.model.kernel_file import parse_kernel
from kopt_starters.codegen.axes import (
    Axis,
    NotCoveredError,
    Places,
    flat,
    fresh,
    leaves,
    merged,
    strides_of,
)
from kopt_starters.codegen.device_functions import helpers_for
from kopt_starters.codegen.epilogue import parts_of
from kopt_starters.codegen.functions import Term
from kopt_starters.codegen.launcher import IMPORTS, checks, header, indented, opening
from kopt_starters.codegen.leading import EXTENT, Leading, along, counted, independent
from kopt_starters.codegen.parts import in_parts, result_of
from kopt_starters.codegen.short_functions import sufficient
from kopt_starters.codegen.steps import Step
from kopt_starters.codegen.tiles import Tiles
from kopt_starters.codegen.writer import (
    Load,
    Writer,
    as_loaded,
    identifier,
    offset,
    scalar_names,
)
from kopt_starters.gpu import power_of_two

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kopt.model.candidate import Candidate
    from kopt.model.device import Target
    from kopt_starters.graph import Graph, Value

_INT32 = 2**31 - 2**16
"""Below this many elements, a block may begin and end beyond the last one in 32 bits."""


class Pointwise:
    """Element-wise operators, casts and moves between them, over broadcast arguments."""

    name = "pointwise"

    def propose(self, graph: Graph, target: Target) -> Iterable[Candidate]:
        """Return one kernel over a flat range; none where anything is not element-wise.

        Where an argument is broadcast along rows there is another one, with tiles of rows.
        """
        result = result_of(graph)
        if target.language != "triton" or result is None:
            return []
        try:
            plan = plan_of(in_parts(graph), result, sufficient(graph))
            sources = {"one pass over a flat range": _source(plan)}
            if plan.broadcast:
                sources = {"one pass, tiles of rows": _rows_source(plan), **sources}
        except NotCoveredError:
            return []
        return [
            parse_kernel(source, "triton", strategy="starters", idea=f"pointwise: {idea}")
            for idea, source in sources.items()
        ]


@dataclass(frozen=True)
class Plan:
    """An element-wise reference: where its arguments are read for an element of the result."""

    graph: Graph
    result: Value
    places: Places
    loads: tuple[Load, ...]
    functions: Mapping[str, str]
    """Functions that are exact enough for 16 bits are so for it."""

    @property
    def steps(self) -> dict[Axis, int]:
        """How each axis moves in the result."""
        return strides_of(self.places, self.result.shape)

    @property
    def groups(self) -> list[tuple[Axis, ...]]:
        """Axes that every access walks as if they were one, together."""
        axes = flat(self.places)
        return merged(axes, [self.steps, *(load.strides for load in self.loads)])

    @property
    def broadcast(self) -> bool:
        """An argument is the same along a row that is worth a tile."""
        groups = self.groups
        moving = [load for load in self.loads if any(load.strides.values())]
        along = [bool(load.strides.get(groups[-1][-1])) for load in moving] if groups else []
        return len(groups) > 1 and not all(along) and _extent(groups[-1]) >= 64

    def coordinates(self) -> dict[Axis, str]:
        """Return the coordinates that addresses are made of: of groups of axes, by their last."""
        groups = self.groups
        lasts = [Axis(_extent(group)) for group in groups]
        texts = parts_of(lasts, "at")
        if len(groups) == 1:
            texts = {lasts[0]: "at"}
        return {group[-1]: texts[last] for group, last in zip(groups, lasts, strict=True)}

    @property
    def arguments(self) -> list[Value]:
        """The tensors that are read."""
        return list({load.argument.name: load.argument for load in self.loads}.values())

    @property
    def alike(self) -> list[Value]:
        """The arguments, where any shape will do that is the same for all; else nothing."""
        steps = self.steps
        tensors = [argument for argument in self.graph.arguments if argument.tensor is not None]
        shapes = {tuple(argument.tensor.shape) for argument in tensors if argument.tensor}
        plain = all(load.strides == steps for load in self.loads) and shapes == {self.result.shape}
        moved = any(v.shape != self.result.shape for n in self.graph.nodes for v in n.outputs)
        if not plain or moved or len(tensors) != len(self.arguments) or _counts(self.graph):
            return []
        return self.arguments

    @property
    def leading(self) -> Leading | None:
        """The leading axis, where there may be less of it and some other shape will not do."""
        outer = next(iter(leaves(self.places)), ())
        if self.alike or not outer:
            return None
        found = along(outer[0], flat(self.places), self.loads)
        return found if found and independent(self.graph, found.extent) else None


def _counts(graph: Graph) -> bool:
    """A constant may be made of an extent, as 1 / n: then other shapes would need another one."""
    sizes = {n for a in graph.arguments if a.tensor for n in (*a.tensor.shape, a.tensor.elements)}
    return counted(graph, sizes)


def _extent(axes: Sequence[Axis]) -> int:
    extent = 1
    for axis in axes:
        extent *= axis.extent
    return extent


def plan_of(graph: Graph, result: Value, functions: Mapping[str, str]) -> Plan:
    """Return the plan of a value. Raises NotCoveredError where it is not element-wise."""
    places = fresh(result.shape)
    before = -1
    while before != len(flat(places)):  # a reshape found late splits what was read before
        before = len(flat(places))
        loads: list[Load] = []

        def load(wanted: Load, loads: list[Load] = loads) -> Term:
            loads.append(wanted)
            return Term("x", "float")

        Writer(graph, load).value(result, places)
    if not loads:
        raise NotCoveredError("a constant")
    return Plan(graph, result, places, tuple(loads), functions)


def _knobs(plan: Plan) -> dict[str, Knob]:
    small = plan.result.elements < 1 << 18
    return {
        "BLOCK": Knob(default=256 if small else 1024, choices=(256, 512, 1024, 2048)),
        "num_warps": Knob(default=2 if small else 4, choices=(2, 4, 8)),
    }


def _body(plan: Plan, mask: str) -> tuple[list[str], dict[str, str]]:
    """Return the kernel's lines and its scalar parameters with their arguments.

    :param mask: what a load is given to leave out what is beyond the last element, and a store.
    """
    where = plan.coordinates()
    other = f"{mask}, other=0" if mask else ""

    def load(wanted: Load) -> Term:
        moving = {axis: step for axis, step in wanted.strides.items() if axis in where}
        whole = wanted.strides == plan.steps
        address = f"{wanted.pointer} + {'at' if whole else offset(moving, where)}"
        text = (
            f"tl.load({address}{other})" if any(moving.values()) else (f"tl.load({wanted.pointer})")
        )
        return writer.assign(*as_loaded(text, wanted.argument.dtype))

    writer = Writer(plan.graph, load, scalars=scalar_names(plan.graph))
    term = writer.value(plan.result, plan.places)
    lines = [
        *writer.lines,
        f"tl.store(out + at, ({term.text}).to(out.dtype.element_ty){mask})",
    ]
    return lines, {name: name.removesuffix("_value") for name in sorted(writer.used)}


def _source(plan: Plan) -> str:
    knobs, (lines, scalars) = _knobs(plan), _body(plan, "")
    beyond, _ = _body(plan, ", mask=inside")
    wide = ".to(tl.int64)" if plan.result.elements >= _INT32 or plan.alike else ""
    pointers = [f"{identifier(value.name)}_ptr" for value in plan.arguments]
    parameters = ", ".join([*pointers, "out", *scalars, "elements", "BLOCK: tl.constexpr"])
    kernel = [
        f"at = tl.program_id(0){wide} * BLOCK + tl.arange(0, BLOCK)",
        # Masks by a count that is odd would leave reads of one element each.
        "if tl.program_id(0) < elements // BLOCK:",
        *(f"    {line}" for line in lines),
        "else:",
        "    inside = at < elements",
        *(f"    {line}" for line in beyond),
    ]
    text = f"\n@triton.jit\ndef _flat({parameters}):\n{indented(kernel)}\n"
    return _file(plan, knobs, text, _launch(plan, scalars))


def _file(plan: Plan, knobs: Mapping[str, Knob], kernel: str, entry: Sequence[str]) -> str:
    return "\n".join(
        [
            header("pointwise", knobs),
            '"""All of an element-wise reference in one kernel."""\n',
            IMPORTS,
            helpers_for(kernel, plan.functions),
            f"{kernel}\n",
            opening(plan.graph, "pointwise", knobs),
            indented(entry),
            "",
        ]
    )


def rows_of(plan: Plan) -> Step:
    """Return a step without reductions, whose columns are those that every access walks as one."""
    *outer, last = plan.groups
    writer = Writer(plan.graph, lambda load: Term("x", "float"), scalars=scalar_names(plan.graph))
    writer.value(plan.result, plan.places)
    kept = [axis for group in outer for axis in group]
    return Step(plan.graph, plan.result, plan.places, kept, list(last), loads=list(plan.loads),
                scalars=writer.used, leading=plan.leading if kept else None)  # fmt: skip


def _rows_source(plan: Plan) -> str:
    step = rows_of(plan)
    tiles, rows = Tiles(step), step.rows_text
    block = min(1024, power_of_two(step.cols))
    knobs = {
        "ROWS": Knob(default=min(1024 // block, 16), choices=(1, 2, 4, 8, 16)[: 4 + (block == 64)]),
        "BLOCK": Knob(
            default=block, choices=tuple(sorted({block, max(64, block // 2), block * 2}))
        ),
        "num_warps": Knob(default=4, choices=(2, 4, 8)),
    }
    given = [identifier(value.name) for value in tiles.arguments.values()]
    passed = ", ".join([*(f"{name}.contiguous()" for name in given), "_out",
                        *(f"float({name})" for name in tiles.scalars.values())])  # fmt: skip
    first = identifier(plan.arguments[0].name)
    entry = [
        *checks(plan.graph, tiles.scalars.values(), leading=step.leading),
        f"_out = torch.empty({Leading.shape(step.leading, plan.result.shape)}, "
        f"dtype=torch.{plan.result.dtype}, device={first}.device)",
        *([f"if not {EXTENT}:", "    return _out"] if step.leading else []),
        f"_plain[(triton.cdiv({rows}, ROWS) * triton.cdiv({step.cols}, BLOCK),)](",
        f"    {passed}, KEPT={rows}, REDUCED={step.cols}, ROWS=ROWS, BLOCK=BLOCK,",
        "    num_warps=num_warps)",
        "return _out",
    ]
    return _file(plan, knobs, tiles.plain(), entry)


def _launch(plan: Plan, scalars: Mapping[str, str]) -> list[str]:
    alike, leading, first = plan.alike, plan.leading, identifier(plan.arguments[0].name)
    shape = f"{first}.shape" if alike else Leading.shape(leading, plan.result.shape)
    given = [f"{identifier(value.name)}.contiguous()" for value in plan.arguments]
    passed = ", ".join([*given, "_out", *(f"float({name})" for name in scalars.values())])
    return [
        *checks(plan.graph, scalars.values(), alike=alike, leading=leading),
        f"_out = torch.empty({shape}, dtype=torch.{plan.result.dtype}, device={first}.device)",
        "_count = _out.numel()",
        "if _count:",
        f"    _flat[(triton.cdiv(_count, BLOCK),)]({passed}, _count, BLOCK=BLOCK, num_warps=num_warps)",
        "return _out",
    ]
