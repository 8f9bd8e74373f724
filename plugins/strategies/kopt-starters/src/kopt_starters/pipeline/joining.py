"""Joins the kernel files of pieces into one whose entry calls theirs in order."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kopt.model.kernel_file import parse_kernel
from kopt_starters.codegen.launcher import header, indented, opening, tensor_checks
from kopt_starters.codegen.leading import pinned
from kopt_starters.codegen.writer import identifier
from kopt_starters.pipeline.renaming import prefixed

if TYPE_CHECKING:
    from kopt.model.candidate import Candidate, Knob
    from kopt_starters.graph import Graph, Value
    from kopt_starters.pipeline.pieces import Piece

ENTRY = "pipeline"
MOST_KNOBS = 8
"""Knobs of all pieces together; others stay at their defaults."""
_OF_FIRST = 6
"""How many of them the heaviest piece has before others have any."""
_HEADER = re.compile(r"^# /// kopt\n(?:#.*\n)*?# ///\n", re.M)


@dataclass(frozen=True, eq=False)
class Stage:
    """A piece with the candidate that is taken for it; None for a view."""

    piece: Piece
    candidate: Candidate | None

    @property
    def number(self) -> str:
        """A name for its module's names to begin with, from what it makes."""
        return f"_s{self.piece.result.name.rpartition('_')[2]}"


def joined(graph: Graph, stages: Sequence[Stage]) -> Candidate:
    """Return one candidate that runs stages one after the other.

    Raises NotCoveredError where the reference's names cannot be those of an entry.
    """
    knobs = chosen_knobs(stages)
    names = {(stage, knob): name for name, (stage, knob, _) in knobs.items()}
    kept = {name: knob for name, (_, _, knob) in knobs.items()}
    modules = [_Module(s.candidate.source, s.number) for s in stages if s.candidate]
    imports = sorted({line for module in modules for line in module.imports})
    ideas = [stage.candidate.idea for stage in stages if stage.candidate]
    first, *others = ideas
    idea = f"pipeline: {'; then '.join([first, *others])}"
    lines = [*(tensor_checks(graph) if pinned(graph) else []), *_calls(stages, names)]
    entry = [*opening(graph, ENTRY, kept).splitlines(), indented(lines)]
    source = "\n\n\n".join(
        [
            f'{header(ENTRY, kept)}\n"""{len(ideas)} kernels in order, with what each makes in memory."""\n\n'
            + "\n".join(imports),
            *(module.body for module in modules),
            "\n".join(entry),
        ]
    )
    return parse_kernel(f"{source}\n", "triton", strategy="starters", idea=idea)


class _Module:
    """A kernel file without its header and docstring, all of its names with a prefix."""

    def __init__(self, source: str, prefix: str) -> None:
        plain = _HEADER.sub("", source, count=1)
        lines = prefixed(plain, prefix).splitlines()
        tree = ast.parse("\n".join(lines))
        self.imports = [
            ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        dropped = [node for node in tree.body if _about(node)]
        for node in reversed(dropped):
            del lines[node.lineno - 1 : node.end_lineno]
        self.body = re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines)).strip()


def _about(node: ast.stmt) -> bool:
    """Whether a statement is an import, or text."""
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return text or isinstance(node, ast.Import | ast.ImportFrom)


def chosen_knobs(stages: Sequence[Stage]) -> dict[str, tuple[Stage, str, Knob]]:
    """Return the knobs to keep, by their names in the joined file: stage, its name there, knob.

    Those of the stages that move most come first, products and convolutions before all others.
    """
    by_weight = sorted(stages, key=lambda s: (s.piece.heavy, s.piece.traffic), reverse=True)
    ranked = [(stage, name, knob) for stage in by_weight for name, knob in _tunable(stage)]
    first = [each for each in ranked if each[0] is ranked[0][0]]
    # The rest of the first stage's knobs come behind those of others.
    ranked = [*first[:_OF_FIRST], *ranked[len(first) :], *first[_OF_FIRST:]]
    kept = ranked[:MOST_KNOBS]
    used = [name for _, name, _ in kept]
    order = [stage for stage in stages if stage.candidate]
    return {
        name if used.count(name) == 1 else f"{name}_{order.index(stage) + 1}": (stage, name, knob)
        for stage, name, knob in kept
    }


def _tunable(stage: Stage) -> list[tuple[str, Knob]]:
    """Return a stage's knobs with a choice, in their order; what is no choice of speed comes last."""
    knobs = stage.candidate.knobs if stage.candidate else {}
    found = [(name, knob) for name, knob in knobs.items() if len(knob.choices) > 1]
    return sorted(found, key=lambda pair: pair[0] == "PRECISION")


def _calls(stages: Sequence[Stage], names: Mapping[tuple[Stage, str], str]) -> list[str]:
    lines = []
    for at, stage in enumerate(stages):
        result = stage.piece.result
        lines.append(f"{result.name} = {_call(stage, names)}")
        later = stages[at + 1 :]
        gone = [name for name in _made(stages[: at + 1]) if not _read(name, later)]
        gone = [name for name in gone if _read(name, [stage])]
        if gone and later:
            lines.append(f"del {', '.join(gone)}")
    return [*lines, f"return {stages[-1].piece.result.name}"]


def _made(stages: Sequence[Stage]) -> list[str]:
    return [stage.piece.result.name for stage in stages]


def _read(name: str, stages: Iterable[Stage]) -> bool:
    return any(stage.piece.graph.tensor(name) for stage in stages)


def _call(stage: Stage, names: Mapping[tuple[Stage, str], str]) -> str:
    graph, candidate = stage.piece.graph, stage.candidate
    given = [identifier(argument.name) for argument in graph.arguments]
    if candidate is None:
        (source,) = (identifier(value.name) for value in graph.nodes[0].tensors)
        return (
            f"{source}.reshape({_reshaped(source, graph.nodes[0].tensors[0], stage.piece.result)})"
        )
    settings = [
        f"{name}={names.get((stage, name)) or repr(value)}"
        for name, value in candidate.chosen.items()
    ]
    return f"{stage.number}{candidate.entry}({', '.join([*given, *settings])})"


def _reshaped(name: str, source: Value, result: Value) -> str:
    """Return a view's shape as an expression; a first dimension that stays is as long as it is."""
    if source.shape[:1] != result.shape[:1] or not source.shape:
        return repr(result.shape)
    sizes = [f"{name}.shape[0]", *map(str, result.shape[1:])]
    return f"({', '.join(sizes)}{',' * (len(sizes) == 1)})"
