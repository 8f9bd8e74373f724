"""Running a candidate under compute-sanitizer: in processes of their own, on the judge's orders."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from kopt.env import cuda_homes
from kopt.errors import CandidateError, WorkerError
from kopt.model.sanitizer import SANITIZER_SECONDS, SanitizerFinding, SanitizerReport
from kopt.worker.pool import ProcessRecipe
from kopt.worker.process import CandidateProcess

TOOLS = ("memcheck", "racecheck", "initcheck")
MOST_BYTES = 1 << 30
"""Of a call's arguments and results: beyond it a call takes too long under the tools."""
_NOTES_ONLY = frozenset({"initcheck"})
"""Tools whose findings never cost a verdict."""
_PATIENCE_SECONDS = 3.0
"""What such a tool may take longer than the others; 40 s were seen, for a large matrix product."""
_CALLS = 2
_TOOL = "compute-sanitizer"
_ENVIRONMENT = {
    # Each tensor is an allocation of its own, so that its bounds are what the tools know.
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
}
_OPTIONS = (
    "--report-api-errors", "no", "--show-backtrace", "device", "--print-limit", "100",
    # How long a process may take until it first uses CUDA, in seconds: imports and builds come first.
    "--launch-timeout", "600",
)  # fmt: skip
_MORE = {
    # What the judge wrote into memory that it shares counts as never written.
    "initcheck": ("--check-api-memory-access", "no"),
    # Else another allocation may begin where one ends, and a read past the end is one of that.
    "memcheck": ("--padding", "65536"),
}
_MOST_LOG = 1 << 20
_MOST_FINDINGS = 20
_ENDED = re.compile(r"^========= (?:ERROR|RACECHECK) SUMMARY:", re.MULTILINE)
_NOT_ATTACHED = re.compile(r"^========= .*No attachable process found", re.MULTILINE)
_HEADER = re.compile(r"^========= (?! )(.+)$")
_AT = re.compile(r"^=========\s+at (\S+?)\+0x[0-9a-f]+(?: in (.+?):(\d+))?\s*$")
_RACE_AT = re.compile(r"(?:Write|Read) access at (\S+?)\+0x[0-9a-f]+(?: in ([^:\s]+):(\d+))?")
_NO_FINDING = re.compile(
    r"COMPUTE-SANITIZER|SUMMARY|Host API memory|process didn't|Saved host backtrace|Target application|Error: (?:No attachable|"
    r"Target|process)|Warning|Internal Sanitizer|Program hit|Process|Unable|Host Frame|Device Frame|Default timeout"
)


def find_tool() -> str | None:
    """Return the path of compute-sanitizer: on PATH, or in CUDA's folder; None where it is not."""
    folders = [f"{home}/bin" for home in (*cuda_homes(), "/usr/local/cuda")]
    return shutil.which(_TOOL) or shutil.which(_TOOL, path=os.pathsep.join(folders))


def sanitize(
    recipe: ProcessRecipe, nbytes: int, calls: Callable[[CandidateProcess, int], None]
) -> SanitizerReport:
    """Have a candidate called under every tool, all at the same time.

    ``nbytes``: of arguments and results. ``calls`` builds the candidate in a process and calls it
    as often as it is told; it may raise CandidateError.
    """
    start = time.monotonic()
    path = find_tool()
    reason = ""
    if path is None:
        reason = (
            f"{_TOOL} is not there: install NVIDIA's CUDA toolkit (package cuda-sanitizer), and put "
            "its bin folder on PATH or name it in CUDA_HOME"
        )
    elif nbytes > MOST_BYTES:
        reason = (
            f"the call's tensors have {nbytes >> 20} MiB, more than {MOST_BYTES >> 20}; give the "
            "problem a small workload too"
        )
    if path is None or reason:
        return SanitizerReport(skipped=dict.fromkeys(TOOLS, reason), seconds=0.0)
    running: dict[str, CandidateProcess] = {}
    with ThreadPoolExecutor(len(TOOLS)) as pool:
        looking = {
            tool: pool.submit(_outcome, path, tool, recipe, calls, running) for tool in TOOLS
        }
        wait([looking[tool] for tool in TOOLS if tool not in _NOTES_ONLY])
        _, late = wait(looking.values(), _PATIENCE_SECONDS)
        given_up = [tool for tool in TOOLS if looking[tool] in late]
        for tool in given_up:
            if tool in running:
                running[tool].kill()
        outcomes = {tool: found.result() for tool, found in looking.items()}
    for tool in given_up:
        if isinstance(outcomes[tool], str):
            outcomes[tool] = (
                f"it took {_PATIENCE_SECONDS:g} s longer than the tools whose findings count"
            )
    return SanitizerReport(
        ran=tuple(tool for tool, found in outcomes.items() if not isinstance(found, str)),
        skipped={tool: found for tool, found in outcomes.items() if isinstance(found, str)},
        findings=tuple(f for found in outcomes.values() if not isinstance(found, str) for f in found),
        seconds=time.monotonic() - start,
    )  # fmt: skip


def _outcome(
    path: str,
    tool: str,
    recipe: ProcessRecipe,
    calls: Callable[[CandidateProcess, int], None],
    running: dict[str, CandidateProcess],
) -> tuple[SanitizerFinding, ...] | str:
    """Return what a tool found, or why it was not run to its end."""
    with tempfile.TemporaryDirectory(prefix="kopt-sanitizer-") as folder:
        log = Path(folder) / "log"
        command = [path, "--tool", tool, "--log-file", str(log), *_OPTIONS, *_MORE.get(tool, ())]
        failure = ""
        process = None
        try:
            process = running[tool] = recipe.start(wrapper=command, environment=_ENVIRONMENT)
            recipe.ready(process, private=True)
            calls(process, _CALLS)
        except (CandidateError, WorkerError) as error:
            failure = (
                str(error).strip().splitlines()[-1][:300] if str(error).strip() else "it failed"
            )
        finally:
            if process is not None:
                process.end(SANITIZER_SECONDS / 3)
        text = _text(log)
    if _NOT_ATTACHED.search(text):
        return (
            f"{_TOOL} gave up before the process had used CUDA; run it again on a machine less busy"
        )
    found = findings(tool, text)
    if found:
        return found
    if failure:
        return f"the call did not return under it: {failure}"
    if not _ENDED.search(text):
        return (
            "it wrote no summary: " + (text.strip().splitlines() or ["its log is empty"])[-1][:200]
        )
    return ()


def _text(path: Path) -> str:
    if path.is_symlink() or not path.is_file():
        return ""
    with path.open("rb") as file:
        return file.read(_MOST_LOG).decode(errors="replace")


def findings(tool: str, log: str) -> tuple[SanitizerFinding, ...]:
    """Read what compute-sanitizer wrote; equal reports, as of other threads, are one finding."""
    found: dict[SanitizerFinding, None] = {}
    lines = log.splitlines()
    for number, text in enumerate(lines):
        header = _HEADER.match(text)
        if header is None or _NO_FINDING.search(header[1]):
            continue
        kernel, line = _place(header[1], lines[number + 1 : number + 8])
        kind = re.sub(r"^Error: ", "", header[1]).partition(" at ")[0].partition(" access")[0]
        more = _address(lines[number + 1 : number + 8])
        message = f"in {kernel}{more}" if kernel else header[1][:200]
        found[SanitizerFinding(tool=tool, kind=kind[:100], line=line, message=message)] = None
    return tuple(found)[:_MOST_FINDINGS]


def _place(header: str, below: list[str]) -> tuple[str, int | None]:
    """Return kernel and line of a report."""
    at = _RACE_AT.search(header)
    for text in below:
        if at is not None or _HEADER.match(text):
            break
        at = _AT.match(text)
    if at is None:
        return "", None
    return at[1], int(at[3]) if at[3] and int(at[3]) > 0 else None


def _address(below: list[str]) -> str:
    for text in below:
        if _HEADER.match(text):
            break
        if "out of bounds" in text or "misaligned" in text or "after the nearest" in text:
            said = text.removeprefix("=========").strip()
            return ": " + re.sub(r"0x[0-9a-f]+", "an address", said)
    return ""
