"""The code that kernels were compiled to: PTX as Triton has it, SASS by its own nvdisasm."""

from __future__ import annotations

import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kopt.errors import CandidateError
from kopt.model.verification import Status
from kopt_triton.resources import bundled, constants_of

KINDS = ("ptx", "sass")
_TOOL_SECONDS = 120


def listings(kernels: Sequence[Any], kind: str) -> dict[str, str]:
    """Return each compiled kernel's code by its name, with its constants where names are equal.

    :param kind: one of ``KINDS``.
    Raises CandidateError (unsupported) where nvdisasm cannot read a binary.
    """
    names = Counter(kernel.metadata.name for kernel in kernels)
    found = {}
    for kernel in kernels:
        name = _name(kernel, alone=names[kernel.metadata.name] == 1)
        while name in found:  # they differ in types or alignment of arguments only
            name += "'"
        found[name] = str(kernel.asm["ptx"]) if kind == "ptx" else _sass(kernel)
    return dict(sorted(found.items()))


def _name(kernel: Any, *, alone: bool) -> str:
    metadata = kernel.metadata
    if alone:
        return str(metadata.name)
    constants = [f"{name}={value}" for name, value in constants_of(kernel).items()]
    shape = [f"num_warps={metadata.num_warps}", f"num_stages={metadata.num_stages}"]
    return " ".join([metadata.name, *constants, *shape])


def _sass(kernel: Any) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(kernel.asm["cubin"])
        done = subprocess.run(
            [bundled("nvdisasm"), "--print-code", str(path)],
            capture_output=True, text=True, timeout=_TOOL_SECONDS, check=False,
        )  # fmt: skip
    if done.returncode != 0:
        said = done.stderr.replace(f"{folder}/", "").strip()
        raise CandidateError(
            Status.UNSUPPORTED, f"Triton's nvdisasm cannot read {kernel.metadata.name}: {said}"
        )
    return done.stdout
