"""Smaller sizes for a KernelBench problem, by one rule, so that it fits in seconds on a CPU."""

from __future__ import annotations

import ast
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

MOST_ELEMENTS = 1 << 17
"""Of inputs, parameters and outputs together."""
MOST_FLOPS = 1 << 26
_FLOORS = {"batch": 4, "group": 2, "head": 2, "depth": 8, "height": 8, "width": 8}
_FLOOR = 16
_MOST_HALVINGS = 14


def shrunk(source: str) -> tuple[str, dict[str, str]]:
    """Return the source with its module's integers halved as often as needed, and what changed.

    All of them are halved as often, but none below 16 (extents of an image 8, batches 4, groups
    and heads 2), so that
    what divides another still does; then the batch alone, where the rest cannot be smaller. Where
    nothing smaller runs, the source is as it was.
    """
    best: tuple[str, dict[str, str]] = (source, {})
    times = 0
    for halvings, batch in [(n, 0) for n in range(_MOST_HALVINGS)] + [(-1, n) for n in range(1, 9)]:
        text, changed = _halved(source, times if halvings < 0 else halvings, batch)
        size = _size_of(text)
        if size is None:  # a pooling window larger than what is pooled, for one
            continue
        times = max(times, halvings)
        best = text, changed
        if size[0] <= MOST_ELEMENTS and size[1] <= MOST_FLOPS:
            break
    return best


def _halved(source: str, times: int, batch: int) -> tuple[str, dict[str, str]]:
    if not times + batch:
        return source, {}
    tree = ast.parse(source)
    changed: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            was = ast.unparse(node.value)
            more = batch if "batch" in ast.unparse(node.targets[0]) else 0
            node.value = _rewritten(node.targets[0], node.value, times + more)
            now = ast.unparse(node.value)
            if now != was:
                changed[ast.unparse(node.targets[0])] = f"{was} -> {now}"
    return ast.unparse(ast.fix_missing_locations(tree)), changed


def _rewritten(target: ast.expr, value: ast.expr, times: int) -> ast.expr:
    """Halve the integers of an expression; products like ``2048 * 2`` are one integer."""
    number = _integer(value)
    if number is not None:
        return ast.Constant(_smaller(number, _floor_of(ast.unparse(target)), times))
    if isinstance(value, ast.Tuple | ast.List):
        targets = target.elts if isinstance(target, ast.Tuple) else [target] * len(value.elts)
        pairs = zip(targets, value.elts, strict=True)
        value.elts = [_rewritten(name, item, times) for name, item in pairs]
    return value


def _integer(value: ast.expr) -> int | None:
    if not isinstance(value, ast.Constant | ast.BinOp):
        return None
    try:
        found = eval(compile(ast.Expression(value), "size", "eval"), {"__builtins__": {}})
    except NameError:  # of other sizes, which are smaller already
        return None
    return found if type(found) is int else None


def _floor_of(name: str) -> int:
    return next((floor for word, floor in _FLOORS.items() if word in name), _FLOOR)


def _smaller(number: int, floor: int, times: int) -> int:
    for _ in range(times):
        if number // 2 < floor:
            break
        number //= 2
    return number


def _size_of(source: str) -> tuple[int, int] | None:
    """Return elements and floating-point operations of a call, from shapes; None if it fails."""
    space: dict[str, Any] = {"__name__": "kernelbench_problem"}
    try:
        exec(compile(source, "problem", "exec"), space)
        with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
            model = space["Model"](*space["get_init_inputs"]()).eval()
            inputs = space["get_inputs"]()
            result = model(*inputs)
    except Exception:  # noqa: BLE001 - a problem's code may raise anything at other sizes
        return None
    leaves = tree_leaves([inputs, list(model.parameters()), result])
    elements = sum(leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor))
    return elements, counter.get_total_flops()
