"""Fingerprints: candidates whose sources differ only in comments and white space are one."""

from __future__ import annotations

import io
import re
import token
import tokenize
from collections.abc import Callable, Iterator

from kopt.model.candidate import Candidate
from kopt.model.record import content_id


def fingerprint(candidate: Candidate) -> str:
    """Return a hash of what runs: language, entry, settings, chosen knob values and the code.

    Comments, blank lines and white space between tokens do not count; Python's docstrings and
    indentation do. A source that cannot be split into tokens, or of another language, counts as it
    stands: two different kernels must never be taken for one.
    """
    read = _READERS.get(candidate.language, _verbatim)
    return content_id(
        candidate.language, read(candidate.source), candidate.entry, candidate.settings,
        candidate.chosen,
    )  # fmt: skip


def _verbatim(source: str) -> list[str]:
    return [source]


# --- Python -------------------------------------------------------------------------------------

_IGNORED = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER})
_SHAPES = {tokenize.NEWLINE: "\n", tokenize.INDENT: "\n>", tokenize.DEDENT: "\n<"}
# Python 3.12 and later split f-strings (3.14: t-strings too); space inside "{x = }" is printed.
_STRING_OPENS = frozenset(
    getattr(token, name) for name in ("FSTRING_START", "TSTRING_START") if hasattr(token, name)
)
_STRING_CLOSES = frozenset(
    getattr(token, name) for name in ("FSTRING_END", "TSTRING_END") if hasattr(token, name)
)


def _python(source: str) -> list[str]:
    try:
        return list(_python_tokens(source))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return _verbatim(source)


def _python_tokens(source: str) -> Iterator[str]:
    lines = io.StringIO(source).readlines()
    depth, start = 0, (1, 0)
    for item in tokenize.generate_tokens(io.StringIO(source).readline):
        if item.type in _STRING_OPENS:
            start = start if depth else item.start
            depth += 1
        elif item.type in _STRING_CLOSES:
            depth -= 1
            if not depth:
                yield _slice(lines, start, item.end)
        elif not depth and item.type not in _IGNORED:
            yield _SHAPES.get(item.type, item.string)


def _slice(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    """Return the text from ``start`` to ``end``, (row from 1, column) each."""
    rows = lines[start[0] - 1 : end[0]]
    rows[-1] = rows[-1][: end[1]]
    rows[0] = rows[0][start[1] :]
    return "".join(rows)


# --- C++ and CUDA -------------------------------------------------------------------------------

_PREFIX = r"(?:u8|u|U|L)?"
_RAW = rf'(?<!\w){_PREFIX}R"(?P<delimiter>[^\s()\\]{{0,16}})\([\s\S]*?\)(?P=delimiter)"\w*'
_STRING = rf'{_PREFIX}"(?:\\[\s\S]|[^"\\\n])*"\w*'
_CHARACTER = rf"{_PREFIX}'(?:\\[\s\S]|[^'\\\n])+'\w*"
_NUMBER = r"\.?\d(?:[eEpP][+-]|'\w|[\w.])*"
_LINE_COMMENT = r"//(?:\\[ \t]*\n|[^\n])*"
_BLOCK_COMMENT = r"/\*[\s\S]*?\*/"
# What is never closed is one token, else each of many would be searched for its end in vain.
_UNCLOSED_COMMENT = r"/\*[\s\S]*"
_UNCLOSED_RAW = rf'(?<!\w){_PREFIX}R"[^\s()\\]{{0,16}}\([\s\S]*'
_UNCLOSED_LITERAL = r"[\"'][^\n]*"
_PUNCTUATION = "|".join(
    re.escape(mark)
    for mark in (
        "%:%:", "<<<", ">>>", "<<=", ">>=", "<=>", "->*", "...", "##", "%:", "::", "->", ".*", "++",
        "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=", "*=", "/=", "%=", "&=",
        "|=", "^=", "<:", ":>", "<%", "%>",
    )
)  # fmt: skip

# Finds raw strings, in which a backslash at a line's end is text; steps over what could hide one.
_RAW_FINDER = re.compile(
    rf"(?P<comment>{_LINE_COMMENT}|{_BLOCK_COMMENT})|(?P<raw>{_RAW})"
    rf"|(?P<other>{_UNCLOSED_COMMENT}|{_UNCLOSED_RAW}|{_STRING}|{_CHARACTER}|{_UNCLOSED_LITERAL}"
    rf"|{_NUMBER}|\w+|.|\n)"
)
_SPLICE = re.compile(r"\\[ \t]*\n")
_PLACEHOLDER = re.compile(r"\0(\d+)\0")
_LEXER = re.compile(
    rf"(?P<space>(?:[^\S\n]|{_LINE_COMMENT}|{_BLOCK_COMMENT})+)|(?P<newline>\n)"
    rf"|(?P<raw>\0\d+\0)"
    rf"|(?P<unclosed>{_UNCLOSED_COMMENT}|{_UNCLOSED_RAW})"
    rf"|(?P<literal>{_STRING}|{_CHARACTER}|{_UNCLOSED_LITERAL}|{_NUMBER})|(?P<word>[^\W\d]\w*)"
    rf"|(?P<mark>{_PUNCTUATION}|.)"
)
_HEADER_NAME = re.compile(r"[ \t]*(<[^>\n]+>)")


def _cpp(source: str) -> list[str]:
    if "\0" in source:
        return _verbatim(source)
    raw: list[str] = []

    def set_aside(match: re.Match[str]) -> str:
        if match["raw"] is None:
            return match[0]
        raw.append(match[0])
        return f"\0{len(raw) - 1}\0"

    text = _RAW_FINDER.sub(set_aside, source.replace("\r\n", "\n"))
    tokens = list(_cpp_tokens(_SPLICE.sub("", text)))
    kept = _single_spaces(tokens) if _stringifies(tokens) else [t for t in tokens if t != " "]
    return [_PLACEHOLDER.sub(lambda match: raw[int(match[1])], item) for item in kept]


def _cpp_tokens(text: str) -> Iterator[str]:
    """Yield tokens; " " for space between two of them, "\\n#" and "\\n" around a directive."""
    position, line_is_empty, directive = 0, True, 0
    before = ""
    while position < len(text):
        match = _LEXER.match(text, position)
        assert match is not None  # the last alternative takes any character
        kind, item, position = match.lastgroup, match[0], match.end()
        if kind == "space":
            yield " "
            continue
        if kind == "newline":
            yield "\n" if directive else " "
            line_is_empty, directive = True, 0
            continue
        if line_is_empty and item in {"#", "%:"}:
            directive, item = 1, "\n#"
        elif directive:
            directive += 1
            # "#define F(x)" is a macro with an argument, "#define F (x)" is not.
            if before == "define" and directive == 3 and text[position : position + 1] == "(":
                item += "("
            elif directive == 2 and item.startswith("include"):
                name = _HEADER_NAME.match(text, position)
                item, position = (item + name[1], name.end()) if name else (item, position)
        line_is_empty, before = False, item
        yield item


def _single_spaces(tokens: list[str]) -> list[str]:
    """Keep one space of many, and none beside the ends of a directive or of the text."""
    kept = ["\n"]
    for item in tokens:
        if item.startswith("\n") and kept[-1] == " ":
            kept.pop()
        if item != " " or (kept[-1] != " " and not kept[-1].startswith("\n")):
            kept.append(item)
    return kept[1:-1] if kept[-1] == " " else kept[1:]


def _stringifies(tokens: list[str]) -> bool:
    """Whether a macro turns its argument into a string: then space between tokens is content."""
    return "#" in tokens or "%:" in tokens


_READERS: dict[str, Callable[[str], list[str]]] = {
    "triton": _python, "torch": _python, "cpp": _cpp, "cuda": _cpp,
}  # fmt: skip
