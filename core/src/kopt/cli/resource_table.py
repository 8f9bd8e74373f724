"""The tables of what built kernels use: registers and memory on a GPU, bytes of code on a CPU."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kopt.evaluator import Compiled


def print_resources(built: Sequence[Compiled]) -> None:
    """Print a row per kernel and target, and what is wrong with each target."""
    from rich.markup import escape

    from kopt.cli.output import put

    for_gpu = [each for each in built if each.kernels]
    here = [each for each in built if each.target == "native" and each.build is not None]
    if for_gpu:
        put(gpu_table(for_gpu))
    if here:
        put(_code_table(here))
    for each in built:
        if each.status is not None:
            put(f"[red]{each.target}: {each.status}[/]: {escape(each.fault)}")


def gpu_table(built: Iterable[Compiled]) -> Any:
    """Return a row per kernel and target."""
    from kopt.cli.output import plain_table

    table = plain_table("KERNEL", "TARGET", "REGISTERS>", "SPILLS B>", "SHARED B>", "LIMITS")
    for each in built:
        counts = Counter(kernel.get("name") for kernel in each.kernels)
        for kernel in each.kernels:
            several = counts[kernel.get("name")] > 1
            table.add_row(*_row(kernel, each.target, several=several))
    return table


def _row(kernel: dict[str, Any], target: str, *, several: bool) -> list[str]:
    """Return the cells; a spill and what exceeds a limit stand out on a terminal."""
    from rich.markup import escape

    name = str(kernel.get("name", ""))
    spills = _figure(kernel, "spill_bytes")
    exceeded = "; ".join(map(str, kernel.get("limits_exceeded", ())))
    return [
        escape(f"{name} {_setting(kernel)}".rstrip() if several else name), target,
        _figure(kernel, "registers"), f"[yellow]{spills}[/]" if spills not in "0?" else spills,
        _figure(kernel, "shared_bytes"), f"[red]{escape(exceeded)}[/]" if exceeded else "within",
    ]  # fmt: skip


def _figure(kernel: dict[str, Any], name: str) -> str:
    from rich.markup import escape

    value = kernel.get(name)
    return "?" if value is None else escape(str(value))


def _setting(kernel: dict[str, Any]) -> str:
    """Return what tells kernels of one name apart."""
    constants = kernel.get("constants") or {}
    parts = [f"{name}={value}" for name, value in constants.items()]
    parts += [
        f"{name}={kernel[name]}"
        for name in ("num_warps", "num_stages", "grid")
        if kernel.get(name) is not None
    ]
    return " ".join(parts)


def _code_table(built: Sequence[Compiled]) -> Any:
    """Return a row per target with every figure that its backend reports."""
    from rich.markup import escape

    from kopt.cli.output import plain_table

    found = [each.build for each in built if each.build is not None]
    names = [
        name for name, value in found[0].resources.items() if isinstance(value, int | float | str)
    ]
    heads = [f"{name.removesuffix('_bytes').upper()} B" if name.endswith("_bytes") else name.upper()
             for name in names]  # fmt: skip
    table = plain_table("TARGET", "BACKEND", *(f"{head}>" for head in heads), "BUILT IN>")
    for each, made in zip(built, found, strict=True):
        figures = [str(made.resources.get(name, "?")) for name in names]
        built_in = "cached" if made.cached else f"{made.seconds:.2g} s"
        table.add_row(*map(escape, (each.target, made.backend, *figures, built_in)))
    return table
