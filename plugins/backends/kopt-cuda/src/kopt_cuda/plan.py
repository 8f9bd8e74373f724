"""The launch plan of a header: kernels in order, their grids, blocks, arguments and scratch memory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError, field_validator

from kopt.errors import CandidateError
from kopt.model.record import Record
from kopt.model.verification import Status
from kopt.worker.segments import ITEM_BYTES

if TYPE_CHECKING:
    from kopt.model.candidate import Candidate

FILE = "kernel.cu"
"""What messages call the candidate's source."""
Expression = int | float | str
_FLAG = re.compile(
    r"--?(use_fast_math|((fmad|ftz|prec-div|prec-sqrt|restrict)=(true|false))|maxrregcount=\d+"
    r"|extra-device-vectorization|generate-line-info|lineinfo|std=c\+\+(11|14|17|20)|restrict)"
    r"|-D\w+(=[^\n]*)?|-U\w+|--ptxas-options=--?(O[0-3]|dlcm=\w+|allow-expensive-optimizations=\w+)"
)
_FLAGS_KNOWN = (
    "known: -DNAME=VALUE, --use_fast_math, --fmad=, --ftz=, --prec-div=, --prec-sqrt=, "
    "--maxrregcount=, --std=c++20, --extra-device-vectorization, --generate-line-info, "
    "--ptxas-options=-O2; others go into the option `flags` of backend.cuda"
)
_SHORT = ("grid", "block", "shared", "cluster", "arguments")
_EXAMPLE = (
    "write [[launch]] with kernel, grid and block, as in: [[launch]] / "
    'kernel = "scale" / grid = ["cdiv(x.numel, 256)"] / block = [256]'
)


class Launch(Record):
    """One kernel launch; every value is a number or an expression over names and knobs."""

    kernel: str
    grid: tuple[Expression, ...] = Field(min_length=1, max_length=3)
    block: tuple[Expression, ...] = Field(min_length=1, max_length=3)
    shared: Expression = 0
    """Bytes of dynamic shared memory."""
    arguments: tuple[Expression, ...] | None = None
    """None: inputs, module state, outputs."""
    cluster: tuple[Expression, ...] | None = Field(default=None, min_length=1, max_length=3)

    @field_validator("grid", "block", "cluster", "arguments", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, int | float | str) else value


class Scratch(Record):
    """A buffer of the launch plan's own."""

    shape: tuple[Expression, ...]
    dtype: str
    zeroed: bool = False
    """Whether it is filled with zeros before each call."""

    @field_validator("dtype")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in ITEM_BYTES:
            raise ValueError(f"{value!r} is no dtype; known: {', '.join(ITEM_BYTES)}")
        return value


class Plan(Record):
    """What the header of a CUDA file says beside knobs and entry."""

    launch: tuple[Launch, ...] = Field(min_length=1)
    scratch: dict[str, Scratch] = Field(default_factory=dict)
    requires: tuple[str, ...] = ()
    """Conditions on shapes and knobs; where one does not hold, the kernel is not for that call."""
    flags: tuple[str, ...] = ()
    """For the compiler."""
    architecture_specific: bool | None = None
    """Compile for sm_90a and the like; None: where the source needs it."""

    @field_validator("requires", mode="before")
    @classmethod
    def _one_condition_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("flags")
    @classmethod
    def _flags_are_about_the_code(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for flag in value:
            if not _FLAG.fullmatch(flag):
                raise ValueError(f"flag {flag!r} is not taken from a header; {_FLAGS_KNOWN}")
        return value


def plan_of(candidate: Candidate) -> Plan:
    """Return the checked launch plan of a candidate. Raises CandidateError (PARSE_ERROR)."""
    settings = dict(candidate.settings)
    short = {name: settings.pop(name) for name in _SHORT if name in settings}
    if short and "launch" in settings:
        raise fault(
            candidate.source, f"{next(iter(short))} beside [[launch]]: move it into one", *short
        )
    if short:
        settings["launch"] = [short]
    if "launch" not in settings:
        raise CandidateError(
            Status.PARSE_ERROR, f"{FILE}: the kopt header has no launch; {_EXAMPLE}"
        )
    launches = settings["launch"]
    if isinstance(launches, list) and all(isinstance(each, dict) for each in launches):
        settings["launch"] = [{"kernel": candidate.entry, **each} for each in launches]
    try:
        return Plan.model_validate(settings)
    except ValidationError as error:
        raise _invalid(candidate.source, error) from error


def _invalid(source: str, error: ValidationError) -> CandidateError:
    # A misspelt key also leaves out the right one: the former is what to say.
    first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
    loc = first["loc"]
    if first["type"] == "extra_forbidden":
        fields = {"launch": Launch.model_fields, "scratch": Scratch.model_fields}.get(
            str(loc[0]), {"entry": 0, "language": 0, "knobs": 0, **Plan.model_fields}
        )
        said = f"unknown key; known: {', '.join(fields)}"
    else:
        said = str(first["msg"]).removeprefix("Value error, ")
    words = [part for part in reversed(loc) if isinstance(part, str)]
    launch = loc[1] if len(loc) > 1 and isinstance(loc[1], int) else None
    place = ".".join(map(str, loc)) or "header"
    return fault(source, f"{place}: {said}", *words, launch=launch)


def line_of(source: str, *words: object, launch: int | None = None) -> int | None:
    """Return the first line with one of ``words``, from the header or a launch of its plan on."""
    lines = source.splitlines()
    header = next((n for n, line in enumerate(lines) if re.match(r"\s*//\s*///", line)), 0)
    starts = [n for n, line in enumerate(lines) if re.match(r"\s*//\s*\[\[launch\]\]", line)]
    first = starts[launch] if launch is not None and launch < len(starts) else header
    for word in words:
        wanted = re.compile(rf"(?<![\w.]){re.escape(str(word))}(?!\w)")
        for number, line in enumerate(lines[first:], first + 1):
            if wanted.search(line):
                return number
    return None


def fault(
    source: str, text: str, *words: object, launch: int | None = None,
    status: Status = Status.PARSE_ERROR,
) -> CandidateError:  # fmt: skip
    """Return an error about the header, with the line that one of ``words`` is on."""
    line = line_of(source, *words, launch=launch)
    return CandidateError(status, f"{FILE}{f':{line}' if line else ''}: {text}")
