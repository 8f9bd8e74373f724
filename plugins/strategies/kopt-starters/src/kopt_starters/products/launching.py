"""Writes the entry of a product: what it refuses, the result that it makes, sizes and strides."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from kopt_starters.codegen.launcher import indented, tensor_checks
from kopt_starters.codegen.leading import Leading
from kopt_starters.rendering import identifier

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kopt_starters.graph import Graph, Value
    from kopt_starters.products.axes import Part
    from kopt_starters.products.matching import Operand, Product

ENTRY = "matrix_product"
_ORDER = ((0, "bmk"), (1, "bkn"), (2, "bmn"), (3, "bmn"))
"""Which strides a launcher hands on: of left, right, bias and result, along these groups."""


def launcher(graph: Graph, product: Product, knobs: list[str]) -> str:
    """Return the function that a candidate's header names.

    Where every group of axes is made of whole dimensions, sizes and strides are computed from
    the arguments, and it holds for other extents too; otherwise they are the graph's own.
    """
    names = [identifier(argument.name) for argument in graph.arguments]
    left, right = _name(product.left.tensor), _name(product.right.tensor)
    strides = [stride(product, which, group) for which, groups in _ORDER for group in groups]
    scalars = product.epilogue.scalars.values() if product.epilogue else ()
    leading = leading_of(product)
    checks = tensor_checks(graph, leading) if leading else _refusal(_checks(product))
    passed = [f"{name}={name}" for name in knobs]
    if "BLOCK_M" in knobs and product.left.tensor.dtype != "float32":
        passed.append('PRECISION="ieee"')
    return "\n".join(
        [
            *entry(names, knobs),
            indented([*_refusal(scalar_checks(graph, scalars)), *checks, "return _launch("]),
            f"        {left}.contiguous(), {right}.contiguous(), ({', '.join(_added(product))},),",
            f"        {_result(product, left, leading)},",
            f"        ({', '.join(_extent(product, group, leading) for group in 'bmnk')}),",
            f"        ({', '.join(strides)}),",
            f"        {', '.join(passed)})",
        ]
    )


def entry(names: Sequence[str], knobs: Sequence[str]) -> list[str]:
    """Return the first lines of an entry."""
    return [
        f"def {ENTRY}({', '.join([*names, '*', *knobs])}):",
        '    """Return the result in a new tensor."""',
    ]


def empty(shape: Sequence[str], dtype: str, like: str) -> str:
    """Return an expression for the result's memory."""
    sizes = "".join(f"{size}, " for size in shape)
    return f"torch.empty(({sizes.rstrip()}), dtype={dtype}, device={like}.device)"


def _added(product: Product) -> list[str]:
    """Return what kernels are given after both operands: the bias, and what an epilogue reads."""
    biased = product.bias is not None and product.beta != 0
    bias = product.bias if product.bias is not None and biased else product.left
    found = [f"{_name(bias.tensor)}.contiguous()"]
    if product.epilogue is not None:
        found += [f"{name}.contiguous()" for name in product.epilogue.parameters.values()]
        found += product.epilogue.scalars.values()
    return found


def leading_of(product: Product) -> Leading | None:
    """Return the rows, or batches, where a product with an epilogue holds for fewer of them."""
    tail, group = product.epilogue, product.coordinates[:1]
    led, fixed = [], []
    for operand in (product.left, product.right, product.bias):
        axis = operand.groups.get(group, ()) if operand else ()
        if operand and any(part.stride for part in axis):
            led.append(operand.tensor)
        elif operand:
            fixed.append(operand.tensor)
        if axis and axis[0].stride and axis[0].dim != 0:
            return None
    # A tile may go beyond the last row; a batch is one of those that there are.
    return tail.leading(led, fixed, masked=group != "b") if tail and group else None


def _extent(product: Product, group: str, leading: Leading | None) -> str:
    led = leading and group == product.coordinates[:1]
    return leading.count(product.size[group]) if leading and led else extent(product, group)


def _result(product: Product, like: str, leading: Leading | None) -> str:
    shape = [_times(_of_result(product, part) for part in axis) for axis in product.axes]
    if product.epilogue is None:
        return empty(shape, f"{like}.dtype", like)
    shape = Leading.sizes(leading, product.result.shape)
    return empty(shape, f"torch.{product.result.dtype}", like)


def scalar_checks(graph: Graph, passed: Iterable[str] = ()) -> list[str]:
    """Return when a scalar argument is not the one that the trace was made with.

    :param passed: those that kernels are given, whatever they are.
    """
    scalars = [argument for argument in graph.arguments if argument.kind == "scalar"]
    names = {identifier(argument.name): argument.value for argument in scalars}
    return [f"{name} != {value!r}" for name, value in names.items() if name not in {*passed}]


def _refusal(conditions: list[str]) -> list[str]:
    if not conditions:
        return []
    lines = [f"    {'or ' if at else ''}{each}" for at, each in enumerate(conditions)]
    return ["if (", *lines, "):", '    raise ValueError("made for such shapes only")']


def _checks(product: Product) -> list[str]:
    """Return when the strides would not hold."""
    operands = [each for each in (product.left, product.right, product.bias) if each]
    if not product.whole:
        read = [load.argument for load in product.epilogue.loads] if product.epilogue else []
        values = [*(each.tensor for each in operands), *read]
        shapes = {_name(value): value.shape for value in values}
        return [f"tuple({name}.shape) != {shape!r}" for name, shape in shapes.items()]
    found = []
    for operand in operands:
        name, shape = _name(operand.tensor), operand.tensor.shape
        found.append(f"{name}.dim() != {len(shape)}")
        found += [f"{name}.shape[{dim}] != 1" for dim, size in enumerate(shape) if size == 1]
    return [
        *dict.fromkeys(found),
        *(f"{one} != {other}" for one, other in _equal(product, operands)),
    ]


def requirements(product: Product) -> list[str]:
    """Return what the strides need of the arguments' shapes, as a kernel file's header says it."""
    operands = [each for each in (product.left, product.right, product.bias) if each]
    fixed = {
        f"{_name(each.tensor)}.shape[{dim}] == {size}": None
        for each in operands
        for dim, size in enumerate(each.tensor.shape) if size == 1 or not product.whole
    }  # fmt: skip
    equal = _equal(product, operands) if product.whole else []
    return [*fixed, *(f"{one} == {other}" for one, other in equal)]


def _equal(product: Product, operands: list[Operand]) -> list[tuple[str, str]]:
    """Return which extents have to agree, of operands that share a group of axes."""
    found = []
    for group in "bmnk":
        sharing = [each for each in operands if each.groups.get(group)]
        for each in sharing[1:]:
            first, other = (_walked(operand, group) for operand in (sharing[0], each))
            if first != other:
                found.append((first, other))
    return found


def _name(value: Value) -> str:
    return identifier(value.name)


def _times(factors: Iterable[str]) -> str:
    """Return a product of sizes; a number where all of them are."""
    kept = [factor for factor in factors if factor != "1"]
    if all(factor.isdigit() for factor in kept):
        return str(prod(map(int, kept)))
    return " * ".join(kept)


def _walked(operand: Operand, group: str) -> str:
    """Return an operand's extent along a group of whole dimensions."""
    name = _name(operand.tensor)
    return _times(f"{name}.shape[{part.dim}]" for part in operand.groups[group])


def _of_result(product: Product, part: Part) -> str:
    """Return the extent of one of the result's parts."""
    if not product.whole:
        return str(part.extent)
    return f"{_name(product.owners[part.group])}.shape[{part.dim}]"


def extent(product: Product, group: str) -> str:
    """Return the extent of a group, as an expression of the arguments' shapes."""
    operands = (product.left, product.right)
    owner = next((each for each in operands if each.groups.get(group)), None)
    if not product.whole or owner is None:
        return str(product.size[group])
    return _walked(owner, group)


def stride(product: Product, which: int, group: str) -> str:
    """Return the stride of a tensor (left, right, bias, result) along a group, as ``extent`` does."""
    if not product.whole or len(product.steps[group]) != 1:
        return str(product.stride(which, group))
    if which == 3:
        return _in_result(product, group)
    operand = (product.left, product.right, product.bias)[which]
    if operand is None or not operand.groups.get(group):
        return "0"
    inner = max(part.dim for part in operand.groups[group] if part.dim is not None)
    name, rank = _name(operand.tensor), len(operand.tensor.shape)
    return _times(f"{name}.shape[{dim}]" for dim in range(inner + 1, rank))


def _in_result(product: Product, group: str) -> str:
    parts = product.parts
    last = max(at for at, part in enumerate(parts) if part.group == group)
    return _times(_of_result(product, part) for part in parts[last + 1 :])
