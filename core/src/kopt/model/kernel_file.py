"""Kernel files: the kopt header in their comments, and the language of a file."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kopt.errors import KernelFileError
from kopt.model.candidate import Candidate, Knob

_SUFFIXES = {".cpp": "cpp", ".cc": "cpp", ".cxx": "cpp", ".cu": "cuda"}
SUFFIX_OF = {"cpp": ".cpp", "cuda": ".cu", "triton": ".py", "torch": ".py"}
_OPEN = re.compile(r"^\s*(#|//)\s*///\s*kopt\s*$")
_CLOSE = re.compile(r"^\s*(#|//)\s*///\s*$")


def header_of(source: str) -> dict[str, Any]:
    """Return the TOML between ``# /// kopt`` and ``# ///`` (``//`` in C++); {} if there is none.

    The form is that of Python's inline script metadata (PEP 723). Raises KernelFileError.
    """
    block: list[str] | None = None
    for line in source.splitlines():
        if block is None:
            block = [] if _OPEN.match(line) else None
        elif _CLOSE.match(line):
            return _parse_header("\n".join(block))
        else:
            block.append(re.sub(r"^\s*(#|//) ?", "", line))
    if block is not None:
        raise KernelFileError("the kopt header is not closed; end it with '# ///' or '// ///'")
    return {}


def is_python(source: str, language: str) -> bool:
    """Return whether a source of a language is Python: CUDA C++ comes in both forms.

    A CUDA source is Python where the lines of its header begin with ``#``.
    """
    if language != "cuda":
        return SUFFIX_OF.get(language) == ".py"
    opened = next(filter(None, map(_OPEN.match, source.splitlines())), None)
    return opened is not None and opened[1] == "#"


def suffix_of(source: str, language: str) -> str:
    """Return the suffix of a file with a source, ``.txt`` for an unknown language."""
    return ".py" if is_python(source, language) else SUFFIX_OF.get(language, ".txt")


def _parse_header(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise KernelFileError(f"the kopt header is not valid TOML: {error}") from error


def language_of(path: Path, source: str) -> str:
    """Return the language of a kernel file from its header, its suffix or its imports."""
    declared = header_of(source).get("language")
    if declared is not None:
        return str(declared)
    if path.suffix in _SUFFIXES:
        return _SUFFIXES[path.suffix]
    if path.suffix == ".py":
        return "triton" if re.search(r"^\s*(import|from)\s+triton\b", source, re.M) else "torch"
    raise KernelFileError(
        f"{path.name}: cannot tell its language; use a suffix among "
        f"{', '.join([*_SUFFIXES, '.py'])} or write language = ... in a kopt header"
    )


def _knob(name: str, value: object) -> Knob:
    if isinstance(value, list) and value:
        value = {"default": value[0], "choices": value}
    if isinstance(value, dict) and "edits" in value:
        raise KernelFileError(f"knob {name!r}: a header declares default and choices only")
    try:
        return Knob.model_validate(value)
    except ValidationError as error:
        detail = "; ".join(str(item["msg"]) for item in error.errors())
        raise KernelFileError(
            f"knob {name!r}: {detail}; write {name} = {{default = 4, choices = [2, 4, 8]}}"
        ) from error


def parse_kernel(
    source: str,
    language: str,
    *,
    entry: str | None = None,
    parents: tuple[str, ...] = (),
    strategy: str = "user",
    idea: str = "",
) -> Candidate:
    """Return the candidate that a kernel file describes; its header wins over ``entry``.

    Raises KernelFileError where the header is wrong or no entry point can be found.
    """
    header = dict(header_of(source))
    _refuse_what_json_lacks(header)
    header.pop("language", None)
    knobs = {name: _knob(name, value) for name, value in header.pop("knobs", {}).items()}
    if strange := [n for n in knobs if not n.isidentifier() or not n.isascii()]:
        raise KernelFileError(f"knob {strange[0]!r}: use a name that a kernel could use, as BLOCK")
    found = header.pop("entry", None) or entry or default_entry(source, language)
    return Candidate(
        language=language, source=source, entry=found, settings=header, knobs=knobs,
        parents=parents, strategy=strategy, idea=idea,
    )  # fmt: skip


def settled_source(candidate: Candidate) -> str:
    """Return the source with the chosen knob values as its header's defaults.

    Values of knobs that were found in the source are written where they were found. Whoever reads
    the file gets what was measured: ``parse_kernel(...).chosen`` is the candidate's.
    """
    if any(knob.edits for knob in candidate.knobs.values()):
        return candidate.text
    if not candidate.values:
        return candidate.source
    import tomlkit

    lines = candidate.source.splitlines(keepends=True)
    start = next(i for i, line in enumerate(lines) if _OPEN.match(line))
    end = next(i for i in range(start + 1, len(lines)) if _CLOSE.match(lines[i]))
    mark = lines[start].strip().split("/// kopt")[0].strip()
    text = "".join(re.sub(r"^\s*(#|//) ?", "", line) for line in lines[start + 1 : end])
    header = tomlkit.parse(text)
    for name, value in candidate.chosen.items():
        knob = tomlkit.inline_table()
        knob.update({"default": value, "choices": list(candidate.knobs[name].choices)})
        header["knobs"][name] = knob
    written = [f"{mark} {line}".rstrip() + "\n" for line in tomlkit.dumps(header).splitlines()]
    return "".join([*lines[: start + 1], *written, *lines[end:]])


def _refuse_what_json_lacks(header: dict[str, Any]) -> None:
    """Raise KernelFileError for dates, NaN and infinities: a run's journal could not hold them."""
    try:
        json.dumps(header, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise KernelFileError(
            f"the kopt header holds a value that JSON does not have ({error}); use text, finite "
            "numbers, true, false, lists or tables"
        ) from error


def _c_functions(source: str) -> list[str]:
    """Return the names of the functions with C linkage; ``__launch_bounds__(...)`` is none."""
    plain = re.sub(r"\b__[a-z_]+__\s*\([^()]*\)", "", source)
    return re.findall(r'extern\s+"C"[^;{]*?\b([A-Za-z_]\w*)\s*\(', plain)


def default_entry(source: str, language: str) -> str:
    """Return the entry point that a file without a header most likely means."""
    native = language in {"cpp", "cuda"} and not is_python(source, language)
    if native:
        found = _c_functions(source)
    else:
        found = re.findall(
            r"^(?:class|def)\s+(ModelNew|kernel_function|custom_kernel)\b", source, re.M
        )
    if not found:
        wanted = (
            'extern "C" function'
            if native
            else ("class ModelNew, def kernel_function or def custom_kernel")
        )
        raise KernelFileError(f"no entry point: no {wanted}, and no entry = ... in a kopt header")
    return str(found[0])


def load_kernel(path: Path, *, language: str | None = None) -> Candidate:
    """Read a kernel file. Raises KernelFileError."""
    try:
        source = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise KernelFileError(f"{path}: no such file; give the file of a kernel") from None
    except OSError as error:
        raise KernelFileError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise KernelFileError(
            f"{path} is no text (byte {error.start} is not UTF-8); give a kernel's source file"
        ) from error
    try:
        return parse_kernel(source, language or language_of(path, source))
    except KernelFileError as error:
        raise KernelFileError(f"{path}: {error}") from error
