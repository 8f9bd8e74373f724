"""Where a Triton source launches its kernels, and which literals each launch depends on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from kopt_triton.names import SourceTree, called


@dataclass(frozen=True)
class Kernel:
    """A ``@triton.jit`` function that is defined once."""

    node: ast.FunctionDef
    decorators: dict[str, ast.expr]
    """By last name: ``jit``, ``autotune``, ``heuristics``."""

    @property
    def name(self) -> str:
        """The function's name."""
        return self.node.name

    @property
    def autotuned(self) -> bool:
        """Whether Triton itself chooses among configurations."""
        return "autotune" in self.decorators

    @property
    def parameters(self) -> list[ast.arg]:
        """All parameters in the order of their positions."""
        return [*self.node.args.posonlyargs, *self.node.args.args, *self.node.args.kwonlyargs]

    @cached_property
    def constants(self) -> frozenset[str]:
        """Parameters annotated ``tl.constexpr``."""
        return frozenset(p.arg for p in self.parameters if _is_constexpr(p.annotation))

    def default(self, parameter: str) -> ast.expr | None:
        """Return the default of a parameter, None where a decorator may give the value."""
        if len(self.decorators) > 1:
            return None
        arguments = self.node.args
        named = [*arguments.posonlyargs, *arguments.args]
        pairs: list[tuple[ast.arg, ast.expr | None]] = [
            *zip(reversed(named), reversed(arguments.defaults), strict=False),
            *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
        ]
        return next((value for name, value in pairs if name.arg == parameter), None)


@dataclass(frozen=True)
class Launch:
    """A call ``kernel[grid](...)``."""

    kernel: Kernel
    call: ast.Call
    grid: ast.expr
    options: dict[str, ast.expr] = field(default_factory=dict)
    """What is given by name or position, by the parameter's name."""

    @property
    def open(self) -> bool:
        """Whether ``*args`` or ``**options`` may give more than is seen."""
        starred = any(isinstance(arg, ast.Starred) for arg in self.call.args)
        return starred or any(keyword.arg is None for keyword in self.call.keywords)


def kernels(tree: SourceTree) -> dict[str, Kernel]:
    """Return the kernels of a source by name; one that is defined twice is left out."""
    found: dict[str, Kernel] = {}
    twice: set[str] = set()
    for node in ast.walk(tree.module):
        if isinstance(node, ast.FunctionDef):
            decorators = {called(each): each for each in node.decorator_list}
            if node.name in found:
                twice.add(node.name)
            if "jit" in decorators:
                found[node.name] = Kernel(node, decorators)
    return {name: kernel for name, kernel in found.items() if name not in twice}


def launches(tree: SourceTree, known: dict[str, Kernel]) -> list[Launch]:
    """Return every launch of the kernels, in the order of the source."""
    found = []
    for node in ast.walk(tree.module):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Subscript):
            continue
        if isinstance(node.func.value, ast.Name) and node.func.value.id in known:
            kernel = known[node.func.value.id]
            found.append(Launch(kernel, node, node.func.slice, _options(kernel, node)))
    return sorted(found, key=lambda launch: tree.span(launch.call))


def _options(kernel: Kernel, call: ast.Call) -> dict[str, ast.expr]:
    given: dict[str, ast.expr] = {}
    for parameter, argument in zip(kernel.parameters, call.args, strict=False):
        if isinstance(argument, ast.Starred):
            break
        given[parameter.arg] = argument
    return given | {word.arg: word.value for word in call.keywords if word.arg is not None}


def grid_numbers(tree: SourceTree, grid: ast.expr) -> Iterator[ast.Constant]:
    """Yield the int literals that a grid is computed from, through names that are assigned once."""
    waiting: list[ast.AST] = [grid]
    seen: set[ast.AST] = set()
    while waiting:
        start = waiting.pop()
        if start in seen:
            continue
        seen.add(start)
        for node in ast.walk(start):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                value = tree.value(node)
                waiting += [value] if value is not None else []
            elif isinstance(node, ast.Constant) and (number := tree.number(node)) is not None:
                yield number


def _is_constexpr(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value.rpartition(".")[2] == "constexpr"
    return annotation is not None and called(annotation) == "constexpr"
