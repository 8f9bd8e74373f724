"""Reads a reply: finds the kernel in it, makes it whole, and says what it turned out to be."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, NamedTuple

from kopt.errors import KernelFileError
from kopt.model.fingerprint import fingerprint
from kopt_rewrite.replies.edits import (
    MOST_EDITS,
    Edit,
    EditError,
    apply,
    diff_hunks,
    open_search,
    search_blocks,
)
from kopt_rewrite.replies.fences import Block, blocks_of
from kopt_rewrite.replies.headers import declared_language, objection, read_kernel, with_header
from kopt_rewrite.replies.languages import bare_code, fits, has_header, looks_like, unfinished
from kopt_rewrite.replies.numbering import numbered_part, without_numbers
from kopt_rewrite.replies.outcome import Outcome, Reading
from kopt_rewrite.replies.wrapping import (
    edits_in_json,
    from_json,
    normalised,
    unescaped,
    without_open_thought,
    without_thoughts,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kopt.model.candidate import Candidate

MOST_SOURCE = 256_000
"""Characters of a kernel file."""
_INFOS = {
    "cpp": {"cpp", "c++", "cc", "cxx", "c"},
    "cuda": {"cuda", "cu", "cpp", "c++", "cuda-cpp"},
    "triton": {"python", "py", "triton", "python3"},
    "torch": {"python", "py", "python3"},
}
_JSON = frozenset({"json", "json5", ""})
_REFUSALS = re.compile(
    r"\bI(?:'m| am) (?:sorry|unable|not able)|\bI (?:can(?:no|')t|will not|won't|must decline)\b|"
    r"\bas an AI\b|\bcannot (?:help|assist|comply)\b|\b(?:against|violates) .{0,40}policy",
    re.IGNORECASE,
)
_ELIDED = re.compile(
    r"^[ \t]*(?://|#|/\*)[ \t]*(?:\.\.\.|…|\(?(?:the )?rest\b|(?:same|unchanged|existing) )"
    r"[^\n]*\b(?:rest|remain\w*|unchanged|same|existing|before|above|as is|omitted)\b",
    re.MULTILINE | re.IGNORECASE,
)


class Wanted(NamedTuple):
    """What a reply was asked for."""

    language: str
    parent: Candidate | None = None
    """The kernel that is to be changed."""
    source: str = ""
    """The parent's text as the prompt showed it; edits apply to it."""
    arguments: Sequence[str] = ()
    """The reference's parameters."""


class _Code(NamedTuple):
    """A piece of code in a reply."""

    text: str
    kind: Outcome
    closed: bool = True
    info: str = ""
    gap: str = ""
    """Lines that are missing by their numbers."""


def read_reply(text: str, wanted: Wanted, *, finish: str = "stop") -> Reading:
    """Return what a reply turned out to be.

    Never raises, runs nothing, and takes time proportional to the text.

    :param finish: why it ends, as kopt.model.completion.Completion's.
    """
    if finish == "filter":
        return Reading(Outcome.REFUSAL, detail="the endpoint's filter stopped the answer")
    text = without_thoughts(normalised(text))
    cut = finish == "length"
    said = "the answer was used up before any code" if cut else "the answer is empty"
    nothing = Reading(Outcome.TRUNCATED if cut else Outcome.EMPTY, detail=said)
    if not text.strip():
        return nothing
    thinking = without_open_thought(text)
    if thinking is None:
        return _read(text, wanted, finish)
    # Where it was cut off, what it wrote was a draft; where it ends by itself, the end was forgotten.
    found = nothing if cut else _read(thinking, wanted, finish)
    return nothing if found.outcome is Outcome.NO_CODE else found


def _read(text: str, wanted: Wanted, finish: str) -> Reading:
    """Return what a text without thoughts turned out to be."""
    if pairs := _json_edits(text, blocks_of(text)):
        return _applied(pairs, Outcome.EDITS, wanted)
    inner = from_json(text)
    if inner is not None:
        return _unwrapped(read_reply_text(normalised(inner), wanted, finish))
    return read_reply_text(text, wanted, finish)


def read_reply_text(text: str, wanted: Wanted, finish: str) -> Reading:
    """Return what a text turned out to be that is not wrapped up."""
    blocks = blocks_of(text)
    changed = _edited(text, blocks, wanted, finish)
    if changed is not None:
        return changed
    found = _best(_codes(text, blocks), wanted)
    if found is None:
        return _without_code(text, finish)
    return _judged(found, wanted, finish)


def _unwrapped(reading: Reading) -> Reading:
    whole = reading.outcome in {Outcome.MODULE, Outcome.HEADER_ADDED}
    return reading._replace(outcome=Outcome.UNWRAPPED) if whole else reading


def _edited(text: str, blocks: list[Block], wanted: Wanted, finish: str) -> Reading | None:
    """Return what becomes of the edits in a reply; None where it has none."""
    kind = Outcome.EDITS
    try:
        edits = search_blocks(text)
        if not edits and not open_search(text):
            kind = Outcome.DIFF
            diffs = [b.text for b in blocks if _is_diff(b)]
            if not diffs and not blocks and "\n@@" in text:
                diffs = [text]
            edits = [edit for diff in diffs for edit in diff_hunks(diff)]
            if not edits:
                return None
        if open_search(text) or (finish == "length" and kind is Outcome.DIFF):
            return Reading(Outcome.TRUNCATED, detail="the last edit is not complete")
    except EditError as error:
        return Reading(Outcome.EDITS_FAILED, detail=str(error))
    return _applied(edits, kind, wanted)


def _applied(edits: list[Edit], kind: Outcome, wanted: Wanted) -> Reading:
    if not wanted.source:
        return Reading(Outcome.NO_CODE, detail="there is no kernel yet to which edits apply")
    try:
        source = apply(edits, wanted.source)
    except EditError as error:
        return Reading(Outcome.EDITS_FAILED, detail=str(error))
    return _judged(_Code(source, kind), wanted, "stop")


def _is_diff(block: Block) -> bool:
    begins = block.text.lstrip("\n").startswith(("--- ", "@@ ", "diff --git "))
    return begins or block.info in {"diff", "patch", "udiff"}


def _json_edits(text: str, blocks: list[Block]) -> list[Edit]:
    """Return the edits of an answer that is a JSON list of them, fenced or not, after prose or not."""
    texts = [text, *(block.text for block in blocks if block.info in _JSON)][:3]
    pairs = next(filter(None, map(edits_in_json, texts)), [])
    return [Edit(tuple(_lines(old)), tuple(_lines(new))) for old, new in pairs[:MOST_EDITS]]


def _lines(text: str) -> list[str]:
    """Return text's lines, without an empty last one."""
    return normalised(text).removesuffix("\n").split("\n")


def _codes(text: str, blocks: list[Block]) -> list[_Code]:
    found = []
    for block in blocks:
        inner = from_json(block.text) if block.info in _JSON else None
        wrapped = inner is not None or block.escaped
        code = unescaped(inner if inner is not None else block.text)
        wrapped = wrapped or code != block.text
        listing = without_numbers(code.split("\n"))
        code = "\n".join(listing.lines) if listing else code
        kind = Outcome.UNWRAPPED if wrapped or listing else Outcome.MODULE
        gap = listing.gap if listing else ""
        if code.strip():
            found.append(_Code(code.strip("\n") + "\n", kind, block.closed, block.info, gap))
    if not found:
        plain = unescaped(text)
        listing = numbered_part(plain)
        if listing and looks_like(numbered := "\n".join(listing.lines).strip("\n") + "\n"):
            return [_Code(numbered, Outcome.UNWRAPPED, gap=listing.gap)]
        code = bare_code(plain)
        if code:
            kind = Outcome.MODULE if plain is text else Outcome.UNWRAPPED
            found.append(_Code(code, kind, closed=True))
    return found


def _best(codes: list[_Code], wanted: Wanted) -> _Code | None:
    """Return the piece that is most likely the kernel: with a header, of the language, the last."""
    scored = [(_score(code, wanted), number) for number, code in enumerate(codes)]
    best = max(scored, default=(0, 0))
    return codes[best[1]] if scored and best[0] > 0 else None


def _score(code: _Code, wanted: Wanted) -> int:
    score = 8 if has_header(code.text) else 0
    if fits(code.text, wanted.language):
        score += 4
    elif looks_like(code.text):
        score += 1
    infos = _INFOS.get(wanted.language, set())
    score += 2 if code.info in infos else 0
    if 'extern "C"' in code.text or re.search(r"\bModelNew\b|\bkernel_function\b", code.text):
        score += 2
    if score and len(code.text) > 400:
        score += 1
    return score


def _without_code(text: str, finish: str) -> Reading:
    if finish == "length":
        return Reading(Outcome.TRUNCATED, detail="the answer was cut off before any code")
    if _REFUSALS.search(text[:4000]):
        return Reading(Outcome.REFUSAL, detail=" ".join(text[:200].split()))
    return Reading(Outcome.NO_CODE, detail="there is no code block in the answer")


def _judged(code: _Code, wanted: Wanted, finish: str) -> Reading:
    """Return whether a piece of code is a kernel of the language that was asked for."""
    text = code.text
    if len(text) > MOST_SOURCE:
        said = f"the file has {len(text)} characters; at most {MOST_SOURCE} are taken"
        return Reading(Outcome.TOO_LONG, detail=said)
    if not fits(text, wanted.language):
        found = looks_like(text) or "no code that kopt knows"
        said = f"the answer is {found}, and {wanted.language} was asked for"
        return Reading(Outcome.WRONG_LANGUAGE, text, said)
    if code.kind not in {Outcome.EDITS, Outcome.DIFF} and (cut := _cut(code, wanted, finish)):
        return Reading(Outcome.TRUNCATED, text, cut)
    return _parsed(code, wanted)


def _cut(code: _Code, wanted: Wanted, finish: str) -> str:
    if _ELIDED.search(code.text):
        return "parts of the file are left out; the whole file is needed, or edits"
    if code.gap:
        return f"lines {code.gap} are left out; the whole file is needed, or edits"
    missing = unfinished(code.text, wanted.language)
    if missing and (finish == "length" or not code.closed or not code.info):
        return f"the code ends in the middle: {missing}"
    return ""


def _parsed(code: _Code, wanted: Wanted) -> Reading:
    text, kind = code.text, code.kind
    added = with_header(text, wanted.language, wanted.parent, wanted.arguments)
    if added is not None:
        text, kind = added, Outcome.HEADER_ADDED if kind is Outcome.MODULE else kind
    try:
        if (named := declared_language(text)) and named != wanted.language:
            said = f"its header says {named}, and {wanted.language} was asked for"
            return Reading(Outcome.WRONG_LANGUAGE, text, said)
        candidate = read_kernel(text, wanted.language)
    except KernelFileError as error:
        said = str(error)
        none = said.startswith("no entry point")
        return Reading(Outcome.NO_ENTRY if none else Outcome.BAD_HEADER, text, said)
    if said := objection(candidate):
        return Reading(Outcome.BAD_HEADER, text, said)
    if wanted.parent is not None and _same(candidate, wanted):
        return Reading(Outcome.UNCHANGED, text, "the kernel is the one that was to be changed")
    return Reading(kind, text)


def _same(candidate: Candidate, wanted: Wanted) -> bool:
    assert wanted.parent is not None
    before = {fingerprint(wanted.parent)}
    with contextlib.suppress(KernelFileError):  # the parent may have been named from outside
        before.add(fingerprint(read_kernel(wanted.source, wanted.language)))
    return fingerprint(candidate) in before
