"""Convolutions whose programs hold every channel of a pixel: reductions over channels in the same kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt.model.candidate import Candidate, Knob
from kopt_starters.codegen.axes import (
    Axis,
    NotCoveredError,
    Places,
    flat,
    fresh,
    leaves,
    strides_of,
)
from kopt_starters.codegen.device_functions import helpers_for
from kopt_starters.codegen.epilogue import parts_of
from kopt_starters.codegen.functions import Term
from kopt_starters.codegen.launcher import tensor_checks
from kopt_starters.codegen.leading import Leading, along, independent
from kopt_starters.codegen.parts import REWRITES, in_parts, result_of
from kopt_starters.codegen.statistics import PREFIX, statistic
from kopt_starters.codegen.writer import Load, Writer, as_loaded, identifier, offset
from kopt_starters.convolution import knobs
from kopt_starters.convolution.fusing import PLAIN, Ending
from kopt_starters.convolution.task import convolution_of
from kopt_starters.families import convolution as written
from kopt_starters.gpu import power_of_two

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kopt.model.device import Target
    from kopt_starters.convolution.task import Convolution
    from kopt_starters.graph import Graph, Node, Value

_WIDER = ("JOIN", "NEAR")
"""Knobs that put several places of the result into a lane."""
_FIRST_OPERAND = 64
"""Rows that a tensor core takes of its first operand at once."""
_MOST_CHANNELS = 128
"""The widest tile of a program."""
_ALONE = (
    # Channels lie along one side of a tile, places of the result along the other.
    "tl.static_assert(COUT <= CHANNELS)",
    "tl.static_assert((out_channel.shape[0] == 1) == (out_w.shape[1] == 1))",
    "tl.static_assert((out_channel.shape[1] == 1) == (out_w.shape[0] == 1))",
    "e_over: tl.constexpr = 1 if out_channel.shape[0] == 1 else 0",
)
_LOWEST, _HIGHEST = 'float("-inf")', 'float("inf")'


class ChannelReductions:
    """One convolution with a reduction over all of its channels, and what is by element around it."""

    name = "channels"

    def propose(self, graph: Graph, target: Target) -> Iterable[Candidate]:
        """Return kernels for the whole graph; empty where a tile cannot hold all channels."""
        if target.language != "triton" or target.device.kind != "cuda":
            return []
        convolutions = [node for node in graph.nodes if node.operator == "convolution"]
        alone = len(convolutions) == 1
        task = convolution_of(convolutions[0], graph.call.tf32) if alone else None
        reducing = [node for node in graph.nodes if node.operator in REWRITES]
        if task is None or not reducing or not _fits(task):
            return []
        numbers = [argument for argument in graph.arguments if argument.kind == "scalar"]
        if numbers or any(graph.producer(tensor) is not None for tensor in task.tensors):
            return []
        try:
            end = _ending(graph, task)
        except NotCoveredError:
            return []
        proposals = written._single(graph, task, end, target.device)
        found = [whole for each in proposals if (whole := _all_channels(each, task)) is not None]
        if task.transposed and max(task.stride) > 1 and task.cin >= 16:
            # The one of phases that reads its input as it lies was faster each time.
            found.sort(key=lambda each: "channels last" in each.idea)
        return found


def _fits(task: Convolution) -> bool:
    small = power_of_two(task.cout) <= _MOST_CHANNELS
    return task.groups == 1 and small and not knobs.direct_suits(task)


def _all_channels(candidate: Candidate | None, task: Convolution) -> Candidate | None:
    """Return a candidate whose tiles are as wide as there are channels; None where it has none."""
    knob = candidate.knobs.get("CHANNELS") if candidate is not None else None
    wide = max(16, power_of_two(task.cout))
    folded = candidate is not None and "fold=True" in candidate.source  # rows are phases, too
    if candidate is None or knob is None or folded:
        return None
    settled = {"CHANNELS": Knob(default=wide, choices=(wide,))}
    if wide < _FIRST_OPERAND and "ORDER" in candidate.knobs:
        settled["ORDER"] = Knob(default="pixels", choices=("channels", "pixels"))
    # A tile of one place of the result to a lane, and no wider than what follows has registers for.
    settled |= {name: Knob(default=1, choices=(1,)) for name in _WIDER if name in candidate.knobs}
    pixels, warps = candidate.knobs["PIXELS"], candidate.knobs["num_warps"]
    if wide * int(pixels.default) >= 64 * 128 and 8 in warps.choices:
        settled["num_warps"] = Knob(default=8, choices=warps.choices)
    idea = f"{candidate.idea}, which holds all channels of a pixel"
    return Candidate(**{**dict(candidate), "knobs": {**candidate.knobs, **settled}, "idea": idea})


def _ending(graph: Graph, task: Convolution) -> Ending:
    """Return how the kernel ends. Raises NotCoveredError where something else is in the graph."""
    result = result_of(graph)
    if result is None:
        raise NotCoveredError("not one result")
    lines = _Lines(in_parts(graph), task, result)
    store = "\n".join(f"    {line}" for line in lines.written())
    pointers = {f"{identifier(name)}_ptr": identifier(name) for name in lines.read}
    return Ending(
        store={**PLAIN.store, "product": store},
        parameters=tuple(pointers),
        handed=tuple(f"{name}.contiguous()" for name in pointers.values()),
        result=f"({Leading.shape(lines.leading, result.shape)}, torch.{result.dtype})",
        helpers=helpers_for(store).strip(),
        guards=tuple(tensor_checks(graph, lines.leading)),
    )


class _Lines:
    """Writes what follows a tile ``total`` of channels x pixels, and its store."""

    def __init__(self, graph: Graph, task: Convolution, result: Value) -> None:
        self._graph, self._task, self._result = graph, task, result
        self._places = fresh(task.output.shape)
        self._writer = Writer(graph, self._load, self._bound, prefix="e_")
        self._reduced: dict[str, str] = {}
        self._loads: list[Load] = []

    @property
    def read(self) -> list[str]:
        """Names of the arguments that what follows reads."""
        return [*dict.fromkeys(load.argument.name for load in self._loads)]

    @property
    def leading(self) -> Leading | None:
        """The images, where there may be fewer of them, once the lines are written."""
        axes, task = flat(self._places), self._task
        if leaves(self._places)[0] != tuple(axes[:1]) or self._result.shape[0] != task.x.shape[0]:
            return None
        value = Load(task.output, strides_of(self._places, task.output.shape))
        given = [Load(task.x, {axes[0]: task.x.elements // task.x.shape[0]})]
        given += [Load(each, {}) for each in task.tensors[1:]]
        found = along(axes[0], axes, [value, *self._loads, *given])
        return found if found and independent(self._graph, found.extent) else None

    def written(self) -> list[str]:
        shape, whole = self._result.shape, self._task.output.shape
        kept = (whole[0], 1, *whole[2:])
        places = self._places
        if shape != whole:
            places = (places[0], (), *places[2:])
            if shape == (whole[0], *whole[2:]):
                places = (places[0], *places[2:])
            elif shape != kept:
                raise NotCoveredError("a result of another shape")
        term = self._writer.value(self._result, places)
        if not self._reduced:
            raise NotCoveredError("no reduction over channels")
        where = offset(strides_of(places, shape), self._coordinates())
        mask, spread = "mask", "out_channel * 0 + out_w * 0"
        if shape != whole:
            mask, spread = f"{_over('max', 'mask.to(tl.int32)')} != 0", "out_w * 0"
        value = f"({term.text}).to(out.dtype.element_ty)"
        at = f"out + ({where}) + {spread}"
        return [*_ALONE, *self._writer.lines, f"tl.store({at}, {value}, mask={mask})"]

    def _coordinates(self) -> dict[Axis, str]:
        dims = len(self._task.output.shape) - 2
        names = ["out_image", "out_channel", *["out_d", "out_h", "out_w"][3 - dims :]]
        return {
            axis: text
            for dim, name in zip(leaves(self._places), names, strict=True)
            for axis, text in parts_of(dim, name).items()
        }

    def _load(self, wanted: Load) -> Term:
        self._loads.append(wanted)
        text = f"tl.load({wanted.pointer} + ({offset(wanted.strides, self._coordinates())}))"
        return self._writer.assign(*as_loaded(text, wanted.argument.dtype))

    def _bound(self, value: Value, places: Places) -> Term | None:
        if value == self._task.output:
            if leaves(places) != leaves(self._places):
                raise NotCoveredError("another order of the convolution's elements")
            return Term("total", "float")
        node = self._graph.producer(value)
        if node is None or not node.operator.startswith(PREFIX):
            return None
        return self._reduction(node, value, places)

    def _reduction(self, node: Node, value: Value, places: Places) -> Term:
        source, dims = node.given
        before, after = leaves(self._places)[:1], leaves(self._places)[2:]
        if dims != (1,) or leaves(places) != (*before, (), *after):
            raise NotCoveredError("a reduction of another dimension")
        if value.name not in self._reduced:
            term = self._writer.value(source, self._places)  # type: ignore[arg-type]
            if term.kind != "float" or statistic(node.operator, "float").of != "float":
                raise NotCoveredError("a reduction of no floats")
            stem = f"e_r{len(self._reduced)}"
            kind = node.operator.removeprefix(PREFIX)
            self._writer.lines += _over_channels(kind, stem, term.text)
            names = [stem, f"{stem}_sum"] if kind in ("softmax", "logsumexp") else [stem]
            self._reduced |= {o.name: n for o, n in zip(node.outputs, names, strict=False)}
        if value.name not in self._reduced:
            raise NotCoveredError("where an extreme is")
        return Term(self._reduced[value.name], "float")


def _over(function: str, x: str) -> str:
    return f"tl.{function}({x}, axis=e_over, keep_dims=True)"


def _over_channels(kind: str, name: str, x: str) -> list[str]:
    """Return lines that reduce a tile over its channels; ``name`` has one element for each pixel."""
    where = f"tl.where(mask, {x}, 0.0)"
    if kind == "sum":
        return [f"{name} = {_over('sum', where)}"]
    extreme = kind.removeprefix("arg")
    if extreme in ("max", "min"):
        return _extreme(extreme, name, x)
    if kind not in ("softmax", "logsumexp"):
        raise NotCoveredError(kind)
    infinite = f"{name} == {_LOWEST}" if kind == "softmax" else f"tl.abs({name}) == {_HIGHEST}"
    return [
        *_extreme("max", name, x),
        f"{name}_shift = tl.where({infinite}, 0.0, {name})",
        f"{name}_powers = tl.where(mask, tl.exp({x} - {name}_shift), 0.0)",
        f"{name}_sum = {_over('sum', f'{name}_powers')}",
    ]


def _extreme(kind: str, name: str, x: str) -> list[str]:
    """A NaN among the channels wins."""
    neutral = _LOWEST if kind == "max" else _HIGHEST
    return [
        f"{name}_x = tl.where(mask, {x}, {neutral})",
        f"{name}_nan = {_over('max', f'({name}_x != {name}_x).to(tl.int32)')}",
        f'{name} = tl.where({name}_nan != 0, float("nan"), {_over(kind, f"{name}_x")})',
    ]
