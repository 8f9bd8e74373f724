"""Find what can be tuned in a Triton source that declares nothing: block sizes, warps, stages.

The text is read, nothing of it is run: neither torch nor triton is imported here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from kopt.model.candidate import Candidate, Edit, Knob
from kopt_triton.configurations import configuration_knob
from kopt_triton.launch_sites import Launch, grid_numbers, kernels, launches
from kopt_triton.names import SourceTree, int_of

SMALLEST_BLOCK, LARGEST_BLOCK = 16, 16384
WARPS = (1, 2, 4, 8, 16)
STAGES = (1, 2, 3, 4, 5)
DEFAULT_WARPS = 4
"""What Triton takes where a launch says nothing."""
_MOST = 64
"""No launch has more warps or stages."""
_OPTIONS = {"num_warps": WARPS, "num_stages": STAGES}
_BLOCK = re.compile(r"BLOCK|TILE|CHUNK|^[BT][A-Z]$")
_SHAPE = re.compile(
    r"^.$|DIM|HEAD|STRIDE|SHAPE|LEN|ROWS?$|COLS?$|COLUMNS?$|CHANNELS?|FEATURES?|HIDDEN|VOCAB|BATCH"
    r"|^(N|NUM|D|IS|HAS|USE|EVEN|WITH|DO|KERNEL|IN|OUT)_"
)


@dataclass
class _Tunable:
    """A parameter, and the literals that are its value."""

    parameter: str
    kernel: str
    value: int
    numbers: list[ast.Constant] = field(default_factory=list)
    insertions: list[Launch] = field(default_factory=list)
    """Launches that do not say it."""


def tunables(source: str) -> dict[str, Knob]:
    """Return the knobs that are found in a source, each with the edits that set it.

    Empty where there are none or the source does not parse. See the README for what counts.
    """
    try:
        tree = SourceTree(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    known = kernels(tree)
    sites = launches(tree, known)
    merged = _merged([*_constants(tree, sites), *_insertions(sites)])
    found: list[tuple[str, str, Knob]] = []
    for each in merged:
        if (knob := _knob(tree, each)) is not None:
            found.append((each.parameter, each.kernel, knob))
    for kernel in known.values():
        if (knob := configuration_knob(tree, kernel)) is not None:
            found.append(("config", kernel.name, knob))
    return _named(found)


def applied(candidate: Candidate) -> Candidate:
    """Return a candidate as it is built: values of found knobs in its source, the others kept."""
    declared = {name: knob for name, knob in candidate.knobs.items() if not knob.edits}
    values = {name: value for name, value in candidate.chosen.items() if name in declared}
    update = {"source": candidate.text, "knobs": declared, "values": values}
    return candidate.model_copy(update=update)


def _constants(tree: SourceTree, sites: list[Launch]) -> Iterator[_Tunable]:
    """Yield what launches give as literals, once for each launch and parameter."""
    for site in sites:
        given = _numbers(tree, site)
        owned = {id(number) for number in given.values()}
        grid = list(grid_numbers(tree, site.grid))
        by_name = {id(number) for number in grid}
        for parameter, number in given.items():
            value = int_of(number)
            if not _is_tunable(parameter, value):
                continue
            numbers = [number]
            if parameter not in _OPTIONS and id(number) not in by_name:
                # The grid repeats the value: it has to follow.
                numbers += [n for n in grid if n.value == value and id(n) not in owned]
            yield _Tunable(parameter, site.kernel.name, value, numbers)


def _numbers(tree: SourceTree, site: Launch) -> dict[str, ast.Constant]:
    """Return the literals of a launch's constants and options, by parameter."""
    found = {}
    for parameter in (*sorted(site.kernel.constants - set(_OPTIONS)), *_OPTIONS):
        given = site.options.get(parameter)
        if given is None and not site.open:
            given = site.kernel.default(parameter)
        if (number := tree.literal(given)) is not None:
            found[parameter] = number
    return found


def _insertions(sites: list[Launch]) -> Iterator[_Tunable]:
    """Yield the warps of launches that leave them to Triton."""
    for site in sites:
        if not (site.open or site.kernel.autotuned or "num_warps" in site.options
                or any(p.arg == "num_warps" for p in site.kernel.parameters)):  # fmt: skip
            yield _Tunable("num_warps", site.kernel.name, DEFAULT_WARPS, insertions=[site])


def _is_tunable(parameter: str, value: int) -> bool:
    """Whether a constant is an option, or a block's extent: not one of the data's, nor a switch."""
    if parameter in _OPTIONS:
        return 0 < value <= _MOST
    name = parameter.upper()
    shape = _SHAPE.search(name) is not None and _BLOCK.search(name) is None
    return value > 0 and value & (value - 1) == 0 and not shape


def _merged(found: list[_Tunable]) -> list[_Tunable]:
    """Put together what shares a literal, and equal values of one parameter of one kernel.

    What shares a literal and is not of one kind, as a block that is also a number of warps, is
    left out.
    """
    groups: list[list[_Tunable]] = []
    for each in found:
        tied = [group for group in groups if any(_same(each, other) for other in group)]
        groups = [group for group in groups if group not in tied]
        groups.append([*(item for group in tied for item in group), each])
    return [_one(group) for group in groups if len({_kind(each) for each in group}) == 1]


def _same(one: _Tunable, other: _Tunable) -> bool:
    if {id(n) for n in one.numbers} & {id(n) for n in other.numbers}:
        return True
    return (one.parameter, one.kernel, one.value) == (other.parameter, other.kernel, other.value)


def _kind(each: _Tunable) -> str:
    return each.parameter if each.parameter in _OPTIONS else "block"


def _one(group: list[_Tunable]) -> _Tunable:
    numbers = {id(n): n for each in group for n in each.numbers}
    sites = [site for each in group for site in each.insertions]
    first = group[0]
    return _Tunable(first.parameter, first.kernel, first.value, list(numbers.values()), sites)


def _knob(tree: SourceTree, each: _Tunable) -> Knob | None:
    choices = _choices(each)
    if len(choices) < 2:
        return None
    edits = [_rewritten(tree, number, choices) for number in each.numbers]
    edits += [_inserted(tree, site, each, choices) for site in each.insertions]
    edits.sort(key=lambda edit: edit.start)
    return Knob(default=each.value, choices=choices, edits=tuple(edits))


def _choices(each: _Tunable) -> tuple[int, ...]:
    if each.parameter in _OPTIONS:
        return tuple(sorted({*_OPTIONS[each.parameter], each.value}))
    now = each.value
    around = (now // 4, now // 2, now * 2, now * 4)
    return tuple(sorted({now, *(n for n in around if SMALLEST_BLOCK <= n <= LARGEST_BLOCK)}))


def _rewritten(tree: SourceTree, number: ast.Constant, choices: tuple[int, ...]) -> Edit:
    start, end = tree.span(number)
    texts = (tree.source[start:end] if v == number.value else str(v) for v in choices)
    return Edit(start=start, end=end, texts=tuple(texts))


def _inserted(tree: SourceTree, site: Launch, each: _Tunable, choices: tuple[int, ...]) -> Edit:
    """Return the edit that adds a keyword before a call's closing parenthesis."""
    _, end = tree.span(site.call)
    parts: list[ast.expr | ast.keyword] = [*site.call.args, *site.call.keywords]
    last = max((tree.span(part)[1] for part in parts), default=0)
    rest = re.sub(r"#[^\r\n]*", "", tree.source[last : end - 1])
    comma = ", " if last and "," not in rest else ""
    texts = ("" if v == each.value else f"{comma}{each.parameter}={v}" for v in choices)
    return Edit(start=end - 1, end=end - 1, texts=tuple(texts))


def _named(found: list[tuple[str, str, Knob]]) -> dict[str, Knob]:
    """Name each knob after its parameter, with the kernel's name before it where that is not one.

    Knobs are in the order of their first places; a name that a knob cannot have leaves it out.
    """
    found = sorted(found, key=lambda each: (each[2].edits[0].start, each[0]))
    parameters = [parameter for parameter, _, _ in found]
    named: dict[str, Knob] = {}
    for parameter, kernel, knob in found:
        single = parameters.count(parameter) == 1
        name = full = parameter if single else f"{kernel}_{parameter}"
        number = 2
        while name in named:
            name, number = f"{full}_{number}", number + 1
        if name.isascii():
            named[name] = knob
    return named
