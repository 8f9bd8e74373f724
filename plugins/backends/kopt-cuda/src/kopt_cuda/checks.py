"""Rows of ``kopt doctor`` for CUDA C++."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt.machine import gpu_names
from kopt.model.check import Check
from kopt_cuda.toolchain import INSTALL, cupy_distribution, find_toolchain

if TYPE_CHECKING:
    from collections.abc import Iterator


def machine_checks(wanted: str | None) -> Iterator[Check]:
    """Yield whether there is a compiler, whether its headers are there, and what kernels run on."""
    toolchain = find_toolchain(wanted)
    if toolchain is None:
        detail = (
            f"no {wanted}" if wanted else f"neither NVRTC (cupy: {cupy_distribution()}) nor nvcc"
        )
        yield Check(name="cuda compiler", state="fail", detail=detail, fix=INSTALL)
        return
    if toolchain.kind == "nvrtc" and not any("_cccl" not in each for each in toolchain.includes):
        major = toolchain.version.partition(".")[0]
        yield Check(
            name="cuda compiler", state="warn",
            detail=f"{toolchain.detail}, without CUDA's headers (cuda_fp16.h)",
            fix=f"pip install 'kopt-cuda[cuda{major}]', or a CUDA toolkit {major}",
        )  # fmt: skip
    else:
        yield Check(name="cuda compiler", state="ok", detail=toolchain.detail)
    yield _running()


def _running() -> Check:
    name = "cuda kernels"
    if not gpu_names():
        return Check(
            name=name, state="warn", detail="no GPU: kernels are compiled for --target only",
            fix="run on a machine with an NVIDIA GPU to check and time them",
        )  # fmt: skip
    found = cupy_distribution()
    if found is None:
        return Check(name=name, state="fail", detail="no cupy to load them with", fix=INSTALL)
    return Check(name=name, state="ok", detail=f"loaded by {found}")
