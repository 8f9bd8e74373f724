"""Which files a source has the compiler or the assembler read, as far as its text can tell."""

from __future__ import annotations

import re

_TRIGRAPHS = {"??=": "#", "??/": "\\"}
_SPLICE = re.compile(r"\\[ \t\f\v\r]*\n")
_DIRECTIVE = re.compile(
    r"(?:^|\*/)[ \t\f\v]*(?:#|%:)[ \t\f\v]*"
    r"(?:(/\*)|(include|include_next|import)\b|(embed)\b|pragma[ \t]+GCC[ \t]+(pch_preprocess)\b)",
    re.M,
)
"""A directive that reads a file, or hides its name; after a comment on its line, too."""
_PART = r"(?!\.)[\w.+\-]+"
_NAMED = re.compile(rf'[ \t]*(?:<{_PART}(?:/{_PART})*>|"{_PART}(?:/{_PART})*")')
"""Neither absolute, nor with ``..``, nor a hidden file."""
_WRITTEN_OUT = re.compile(r'[ \t]*[<"]')
_IN_PYTHON = re.compile(
    r'^[ \t]*#[ \t]*(?:include|embed|import)[ \t]*[<"][ \t]*(?:/|\.\.|~|[A-Za-z]:)|#[ \t]*embed\b',
    re.M,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,4})|([0-7]{1,3}))")
_JOINED = re.compile(r'"\s*"')
_ASSEMBLED = re.compile(r"\.incbin\b|\.include[ \t]*\\*[\"']")
PATH = "it includes a file by its path: only the compiler's own headers may be included"
MACRO = "an #include has to name its header itself, as in #include <cmath>"


def reads_files(source: str, *, python: bool = False) -> str:
    """Return why a source may read files besides the compiler's own headers; empty where it may not.

    C and C++ are taken apart as a compiler does (trigraphs, lines that go on, digraphs), and an
    ``#include`` has to name its header: one of a macro, or with a comment before the name, is
    refused, and so are paths that are absolute or have ``..`` in them. What stands in comments and
    strings counts as well, so that no quotation mark can hide a directive. Takes time proportional
    to the text.

    Assembly cannot be told in full: strings side by side and numeric escapes are put together, but
    what macros, operands (``%c0``) or the assembler's own ``.macro`` make of it is known to the
    compiler alone, and refusing all of ``asm`` would refuse honest kernels. Sources in Python can
    open files anyway: of those only an include that is written out is refused. What keeps
    secrets from such code is the process that it is built and run in.

    :param python: whether the source is Python, where ``#`` begins a comment.
    """
    if python:
        return PATH if _IN_PYTHON.search(source) or _assembles(source) else ""
    whole = source
    for mark, meant in _TRIGRAPHS.items():
        whole = whole.replace(mark, meant)
    # Compilers differ in what they take for trigraphs and for lines that go on: all must be sound.
    for text in dict.fromkeys([source, *(_SPLICE.sub("", each) for each in (source, whole))]):
        for found in _DIRECTIVE.finditer(text):
            if said := _refused(found):
                return said
        if _assembles(text):
            return PATH
    return ""


def _refused(directive: re.Match[str]) -> str:
    """Return why a directive is not allowed, or nothing."""
    hidden, includes, *_ = directive.groups()
    if hidden:
        return MACRO
    if not includes:
        return PATH
    text, at = directive.string, directive.end()
    if _NAMED.match(text, at):
        return ""
    return PATH if _WRITTEN_OUT.match(text, at) else MACRO


def _assembles(text: str) -> bool:
    """Return whether a string of a text has the assembler read a file."""
    plain = _ESCAPE.sub(lambda found: chr(int(found[1] or found[2], 16 if found[1] else 8)), text)
    return any(_ASSEMBLED.search(_JOINED.sub("", each)) for each in (text, plain))
