"""Which listings of a candidate there are, read; what is missing becomes a note."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kopt.errors import CandidateError
from kopt_static import assembly, ptx, sass

if TYPE_CHECKING:
    from kopt.model.probe import Probe
    from kopt_static.code import Code

_FROM_PTX = "instructions are counted in PTX: what the assembler makes of them, and its spills, are not seen"


class Listed(NamedTuple):
    """One function of one listing."""

    label: str
    """The listing's name: a file, or a kernel with its constants."""
    symbol: str
    code: Code


class Listings(NamedTuple):
    """All functions that were read, and what was not."""

    functions: tuple[Listed, ...]
    notes: tuple[str, ...]

    def code_of(self, kernel: Mapping[str, Any]) -> Listed | None:
        """Return the code of one of a build's kernels; None where it is not there, or not alone."""
        named = [each for each in self.functions if each.symbol == kernel.get("name")]
        if len(named) > 1:
            named = [each for each in named if each.label == _label(kernel)]
        return named[0] if len(named) == 1 else None

    def launched(
        self, kernels: Sequence[Mapping[str, Any]], probe: Probe
    ) -> tuple[list[tuple[Mapping[str, Any], Code | None]], list[str]]:
        """Return those of a build's kernels that are in the listings, each with its code.

        A build may have more specializations of a kernel than the call launches, as for the shapes
        of other calls. Where the listings have fewer, the size of its PTX tells which it is.
        """
        more = _names(kernels)
        more.subtract(each.symbol for each in self.functions)
        doubtful = {
            each["name"] for each in kernels if more[each["name"]] > 0 and "ptx_bytes" in each
        }
        sizes = _ptx_bytes(probe) if doubtful else {}
        found: list[tuple[Mapping[str, Any], Code | None]] = []
        notes = []
        for kernel in kernels:
            listed = self.code_of(kernel)
            if kernel["name"] in doubtful and listed is not None:
                listed = listed if sizes.get(listed.label) == kernel["ptx_bytes"] else None
            found.append((kernel, listed.code if listed else None))
        certain = {kernel["name"] for kernel, code in found if code and kernel["name"] in doubtful}
        for name in sorted(doubtful & certain):
            notes.append(f"{name}: specializations that the call does not launch are left out")
        return [each for each in found if each[1] or each[0]["name"] not in certain], notes


def _label(kernel: Mapping[str, Any]) -> str:
    """Return how a listing of several specializations of a kernel names one of them."""
    constants = [f"{name}={value}" for name, value in kernel.get("constants", {}).items()]
    shape = [f"{name}={kernel[name]}" for name in ("num_warps", "num_stages") if name in kernel]
    return " ".join([str(kernel.get("name")), *constants, *shape])


def _names(kernels: Sequence[Mapping[str, Any]]) -> Counter[str]:
    return Counter(each["name"] for each in kernels)


def _ptx_bytes(probe: Probe) -> dict[str, int]:
    """Return the size of each kernel's PTX; empty where there is none."""
    try:
        return {label: len(text.encode()) for label, text in probe.listing("ptx").items()}
    except CandidateError:
        return {}


def of_gpu(probe: Probe) -> Listings:
    """Return SASS; where there is none, PTX."""
    listed = _read(probe, "sass", sass.kernels)
    if listed.functions:
        return listed
    other = _read(probe, "ptx", ptx.kernels)
    notes = (*listed.notes, *other.notes, *([_FROM_PTX] if other.functions else ()))
    return Listings(other.functions, notes)


def of_cpu(probe: Probe) -> Listings:
    """Return the assembly."""
    return _read(probe, "asm", assembly.functions)


def _read(probe: Probe, kind: str, parse: Callable[[str], dict[str, Code]]) -> Listings:
    try:
        texts = probe.listing(kind)
    except CandidateError as error:
        return Listings((), (f"no {kind} listing: {error}",))
    found = [
        Listed(label, symbol, code)
        for label, text in texts.items()
        for symbol, code in parse(text).items()
    ]
    notes = () if found else (f"no code was found in the {kind} listing of {', '.join(texts)}",)
    return Listings(tuple(found), notes)
