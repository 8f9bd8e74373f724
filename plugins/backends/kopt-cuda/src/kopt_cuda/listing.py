"""The code that a source was compiled to: PTX by the compiler itself, SASS by a disassembler."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kopt.env import cuda_homes
from kopt.errors import CandidateError
from kopt.model.verification import Status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kopt_cuda.program import Recipe

KINDS = ("ptx", "sass")
_TOOLS = {"nvdisasm": "--print-code", "cuobjdump": "--dump-sass"}
"""Name to option, the better one first: it also has labels, sizes and flags."""
_TOOL_SECONDS = 120
_NO_TOOL = (
    "no nvdisasm and no cuobjdump is on PATH, in CUDA_HOME, in /usr/local/cuda or in Triton, and "
    "one of them prints SASS: install the CUDA toolkit's nvdisasm, or `pip install triton`"
)


class Compiled(Protocol):
    """What listings are of, as a Program is."""

    @property
    def source(self) -> str:
        """The CUDA source."""
        ...

    @property
    def recipe(self) -> Recipe:
        """How it was compiled."""
        ...

    @property
    def cubin(self) -> Path:
        """The binary's file."""
        ...


def listing_of(program: Compiled, kind: str) -> str:
    """Return the code of a program. ``kind``: one of ``KINDS``. Raises CandidateError."""
    if kind == "ptx":
        with tempfile.TemporaryDirectory() as folder:
            return program.recipe.ptx(program.source, Path(folder))
    return _sass(program.cubin)


def _sass(cubin: Path) -> str:
    """Return what the first disassembler that can read a binary makes of it."""
    said = []
    for tool, option in disassemblers():
        done = subprocess.run(
            [tool, option, cubin.name], capture_output=True, text=True, timeout=_TOOL_SECONDS,
            check=False, cwd=cubin.parent,
        )  # fmt: skip
        if done.returncode == 0 and "/*0000*/" in done.stdout:
            return done.stdout
        said.append(f"{tool}: {(done.stderr or done.stdout).strip() or 'no code found'}")
    raise CandidateError(Status.UNSUPPORTED, "; ".join(said) or _NO_TOOL)


def disassemblers() -> Iterator[tuple[str, str]]:
    """Yield path and option of each disassembler that this machine has."""
    folders: list[str | None] = [None]  # PATH
    folders += [str(Path(home) / "bin") for home in cuda_homes()]
    folders += ["/usr/local/cuda/bin", "/opt/cuda/bin"]
    spec = find_spec("triton")
    for place in (spec.submodule_search_locations if spec else None) or ():
        folders.append(str(Path(place) / "backends" / "nvidia" / "bin"))
    for name, option in _TOOLS.items():
        for folder in folders:
            if path := shutil.which(name, path=folder):
                yield path, option
