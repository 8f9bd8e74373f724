"""Recognises a matrix product with the views around it, and what becomes of its result."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

from kopt_starters.codegen import epilogue
from kopt_starters.products.axes import (
    VIEWS,
    Axes,
    Axis,
    Part,
    Step,
    aligned,
    extent,
    of_tensor,
    viewed,
)

if TYPE_CHECKING:
    from kopt_starters.codegen import Epilogue
    from kopt_starters.graph import Graph, Node, Value

_FORMS = {
    "mm": ("mk", "kn"),
    "bmm": ("bmk", "bkn"),
    "mv": ("mk", "k"),
    "dot": ("k", "k"),
}
"""The groups of axes of both operands: batch, rows, columns, and depth, over which is summed."""
_ADDING = {"addmm": "mm", "baddbmm": "bmm", "addmv": "mv"}


@dataclass(frozen=True)
class Operand:
    """An argument of the reference, and which of its positions each group of axes walks."""

    tensor: Value
    groups: dict[str, Axis]

    @property
    def whole(self) -> bool:
        """Whether every group consists of whole dimensions."""
        return all(part.dim is not None for axis in self.groups.values() for part in axis)


@dataclass(frozen=True)
class Triangle:
    """Of the result's rows and columns only ``column - row >= diagonal`` (or ``<=``) is kept."""

    upper: bool
    diagonal: int


@dataclass(frozen=True)
class Product:
    """``alpha * left @ right + beta * bias`` per batch, and where its elements go.

    Groups are ``b`` (batch), ``m`` (rows), ``n`` (columns) and ``k`` (depth).
    """

    left: Operand
    right: Operand
    bias: Operand | None
    alpha: float
    beta: float
    axes: Axes
    """Of the result; their parts' strides count positions within their group."""
    owners: dict[str, Value]
    """For each group of the result, the argument whose dimensions its parts name."""
    coordinates: str
    """The group of each dimension of the operator's own output."""
    result: Value
    triangle: Triangle | None = None
    epilogue: Epilogue | None = None
    """What follows the operator, where that is more than views and a triangle."""
    steps: dict[str, tuple[Step, ...]] = field(default_factory=dict)
    """The loop nest of each group, strides in the order of ``tensors``."""

    @cached_property
    def size(self) -> dict[str, int]:
        """Number of positions of each group."""
        found = dict.fromkeys("bmnk", 1)
        for operand in (self.left, self.right):
            found |= {group: extent(axis) for group, axis in operand.groups.items()}
        return found

    @property
    def laborious(self) -> bool:
        """Whether an epilogue calls functions of many instructions."""
        if self.epilogue is None:
            return False
        lines, _ = self.epilogue.lines("x", list(self.coordinates))
        return bool(self.epilogue.helpers(lines))

    @property
    def parts(self) -> list[Part]:
        """Of the result, in the order in which they lie in memory, outermost first."""
        return [part for axis in self.axes for part in axis]

    def placed(self, group: str) -> Axis:
        """Return a group's parts with their strides in the result."""
        parts = self.parts
        strides = [prod(inner.extent for inner in parts[at + 1 :]) for at in range(len(parts))]
        mine = [(part, s) for part, s in zip(parts, strides, strict=True) if part.group == group]
        mine.sort(key=lambda pair: -pair[0].stride)
        return tuple(replace(part, stride=stride) for part, stride in mine)

    def walked(self, operand: Operand | None, group: str) -> Axis:
        """Return a group's parts in an operand; it stands still where it has none of it."""
        axis = operand.groups.get(group, ()) if operand else ()
        size = self.size[group]
        return (Part(size, 0),) if not axis and size > 1 else axis

    def stride(self, which: int, group: str) -> int:
        """Return the innermost stride of a tensor (left, right, bias, result) along a group."""
        return self.steps[group][-1].strides[which] if self.steps[group] else 0

    def flipped(self) -> Product:
        """Return the same with rows as columns: ``right.T @ left.T``."""
        left, right, bias = (_renamed(each) for each in (self.left, self.right, self.bias))
        axes = tuple(
            tuple(replace(p, group=_OTHER.get(p.group, p.group)) for p in axis)
            for axis in self.axes
        )
        triangle = self.triangle and Triangle(not self.triangle.upper, -self.triangle.diagonal)
        steps = {
            _OTHER.get(group, group): tuple(
                Step(each.extent, (each.strides[1], each.strides[0], *each.strides[2:]))
                for each in steps
            )
            for group, steps in self.steps.items()
        }
        owners = {_OTHER.get(group, group): value for group, value in self.owners.items()}
        assert left is not None and right is not None
        return replace(
            self, left=right, right=left, bias=bias, axes=axes, owners=owners,
            coordinates=self.coordinates.translate(_SWAPPED), triangle=triangle, steps=steps,
        )  # fmt: skip

    @property
    def whole(self) -> bool:
        """Whether it holds for other extents too: whole dimensions, each group in one stride."""
        operands = [each for each in (self.left, self.right, self.bias) if each]
        if self.epilogue is not None:
            return False
        dims = all(each.whole for each in operands) and all(p.dim is not None for p in self.parts)
        return dims and all(len(steps) <= 1 for steps in self.steps.values())


_OTHER = {"m": "n", "n": "m"}
_SWAPPED = str.maketrans(_OTHER)


def _renamed(operand: Operand | None) -> Operand | None:
    if operand is None:
        return None
    groups = {_OTHER.get(group, group): axis for group, axis in operand.groups.items()}
    return replace(operand, groups=groups)


def product_of(graph: Graph) -> Product | None:
    """Return the matrix product that a graph is; None where it is another, or more than that."""
    found = [node for node in graph.nodes if node.operator in {*_FORMS, *_ADDING}]
    result = graph.result
    if len(found) != 1 or result is None or any(0 in _shapes(node) for node in graph.nodes):
        return None
    seen: set[str] = {found[0].output.name}
    product = _multiplied(graph, found[0], seen)
    if product is None:
        return None
    finished = _finished(graph, product, found[0].output, seen)
    if finished is not None and seen == {node.output.name for node in graph.nodes}:
        return _stepped(finished)
    fused = epilogue(graph, found[0].output)
    return _stepped(replace(product, epilogue=fused, result=result)) if fused else None


def _shapes(node: Node) -> list[int]:
    return [size for value in [*node.tensors, *node.outputs] for size in value.shape]


def resolved(graph: Graph, value: Value, seen: set[str]) -> tuple[Value, Axes] | None:
    """Return the argument that a value is a view of, with its axes; adds the views to ``seen``."""
    views: list[Node] = []
    while (node := graph.producer(value)) is not None:
        if node.operator not in VIEWS or len(node.tensors) != 1:
            return None
        views.append(node)
        value = node.tensors[0]
    axes: Axes | None = of_tensor(value.shape)
    for node in reversed(views):
        axes = viewed(node, axes) if axes is not None else None
        seen.add(node.output.name)
    return None if axes is None else (value, axes)


def _operand(graph: Graph, value: Value, groups: str, seen: set[str]) -> Operand | None:
    found = resolved(graph, value, seen)
    if found is None:
        return None
    tensor, axes = found
    # A bias may lack leading axes: it is repeated over them.
    return Operand(tensor, dict(zip(groups[len(groups) - len(axes) :], axes, strict=True)))


def _multiplied(graph: Graph, node: Node, seen: set[str]) -> Product | None:
    """Return a product's own result, with what is added to it."""
    form = _ADDING.get(node.operator, node.operator)
    tensors = node.tensors
    added = node.operator in _ADDING
    if node.overload != "default" or len(tensors) != 2 + added:
        return None
    left = _operand(graph, tensors[added], _FORMS[form][0], seen)
    right = _operand(graph, tensors[added + 1], _FORMS[form][1], seen)
    if left is None or right is None:
        return None
    rows = "".join(group for group in "bmn" if group in left.groups or group in right.groups)
    bias = _operand(graph, tensors[0], rows, seen) if added else None
    scale = [node.named.get(name, 1) for name in ("alpha", "beta")]
    if (added and bias is None) or not all(isinstance(each, int | float) for each in scale):
        return None
    alpha, beta = (float(each) for each in scale if isinstance(each, int | float))
    owners = {g: right if g == "n" else left for g in rows}
    axes = tuple(_counted(owners[g].groups[g], g) for g in rows)
    values = {g: operand.tensor for g, operand in owners.items()}
    return Product(left, right, bias, alpha, beta, axes, values, rows, node.output)


def _counted(axis: Axis, group: str) -> Axis:
    """Return parts whose strides count positions within their group."""
    sizes = [part.extent for part in axis]
    return tuple(
        Part(part.extent, prod(sizes[at + 1 :]), part.dim, group) for at, part in enumerate(axis)
    )


def _finished(graph: Graph, product: Product, value: Value, seen: set[str]) -> Product | None:
    """Follow views and triangles from the product to the graph's result."""
    while graph.result != value:
        users = graph.users(value)
        if len(users) != 1 or len(users[0].tensors) != 1:
            return None
        node, value = users[0], users[0].output
        seen.add(value.name)
        if node.operator in ("triu", "tril"):
            triangle = _triangle(node, product)
            if triangle is None:
                return None
            product = replace(product, triangle=triangle)
            continue
        axes = viewed(node, product.axes)
        if axes is None:
            return None
        product = replace(product, axes=axes)
    return replace(product, result=value)


def _triangle(node: Node, product: Product) -> Triangle | None:
    """Return what ``triu`` or ``tril`` keeps; None unless it looks at whole rows and columns."""
    diagonal = node.argument(1, "diagonal", 0)
    if product.triangle or not isinstance(diagonal, int) or len(product.axes) < 2:
        return None
    upper = node.operator == "triu"
    if _is_group(product, -2, "m") and _is_group(product, -1, "n"):
        return Triangle(upper, diagonal)
    if _is_group(product, -2, "n") and _is_group(product, -1, "m"):
        return Triangle(not upper, -diagonal)
    return None


def _is_group(product: Product, dim: int, group: str) -> bool:
    """Whether an axis of the result is all of a group of axes, in order."""
    axis = product.axes[dim]
    strides = [part.stride for part in axis]
    mine = all(part.group == group for part in axis) and extent(axis) == product.size[group]
    return mine and strides == sorted(strides, reverse=True)


def _stepped(product: Product) -> Product | None:
    """Return the product with its loop nests; None where depth has no single stride."""
    steps = {}
    for group in "bmnk":
        tensors = [product.walked(each, group) for each in (product.left, product.right)]
        if group != "k":
            tensors += [product.walked(product.bias, group), product.placed(group)]
        found = aligned(tensors)
        if found is None or (group == "k" and len(found) > 1):
            return None
        steps[group] = found
    return replace(product, steps=steps)
