"""The compilers of CUDA C++ that a machine has, and the header folders that they need."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from kopt.model.record import Record

INSTALL = "pip install 'kopt-cuda[cuda12]' (or [cuda13], as the driver), or install nvcc"
_NVCC_PLACES = ("/usr/local/cuda/bin", "/opt/cuda/bin")
_PROBE_SECONDS = 30


class Toolchain(Record):
    """A compiler that was found, with all that decides what it makes of a source."""

    kind: Literal["nvrtc", "nvcc"]
    path: str
    """Of nvcc; empty for NVRTC."""
    version: str
    """As ``12.9``."""
    detail: str
    """For a person."""
    includes: tuple[str, ...]
    """Folders with CUDA's own headers, besides those that it knows itself."""


@functools.cache
def find_toolchain(wanted: str | None = None) -> Toolchain | None:
    """Return NVRTC through cupy where it works, else nvcc; None where neither is there.

    :param wanted: ``nvrtc``, ``nvcc`` or a path of nvcc; nothing else is taken then.
    """
    found = None
    if wanted in {None, "nvrtc"}:
        found = _nvrtc()
    if found is None and wanted != "nvrtc":
        found = _nvcc(wanted or "nvcc")
    return found


def cupy_distribution() -> str | None:
    """Return name and version of the installed cupy, without importing it."""
    for each in distributions():
        name = each.metadata["Name"] or ""
        if re.fullmatch(r"cupy(-cuda\d+x)?", name, re.I):
            return f"{name} {each.version}"
    return None


def _nvrtc() -> Toolchain | None:
    if find_spec("cupy") is None:
        return None
    try:
        from cupy.cuda import nvrtc

        major, minor = nvrtc.getVersion()
    except Exception:  # noqa: BLE001 - cupy says in many ways that it finds no library
        return None
    includes = [*_cuda_folders(major), *_cccl_folders()]
    return Toolchain(
        kind="nvrtc", path="", version=f"{major}.{minor}", includes=tuple(includes),
        detail=f"NVRTC {major}.{minor} through {cupy_distribution() or 'cupy'}",
    )  # fmt: skip


def _nvcc(wanted: str) -> Toolchain | None:
    path = shutil.which(wanted) or shutil.which(wanted, path=":".join(_NVCC_PLACES))
    if path is None:
        return None
    done = subprocess.run(
        [path, "--version"], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
    )
    found = re.search(r"release (\d+\.\d+), V([\d.]+)", done.stdout)
    if found is None:
        return None
    return Toolchain(
        kind="nvcc", path=path, version=found[1], detail=f"nvcc {found[2]}", includes=()
    )


_SPLIT_MAJOR = 12
"""Whose wheels have ``crt/`` with the compiler, in a folder without any header of the runtime."""


def _cuda_folders(major: int) -> list[str]:
    """Return the folders whose CUDA headers are of NVRTC's own major version.

    The first one is taken; the others have what it lacks, as wheels have CUDA's headers in parts
    (``crt/mma.h`` is in another one than ``mma.h``).
    """
    places = [
        *_packaged("nvidia", f"cu{major}/include"),
        *_packaged("nvidia", "cuda_runtime/include"),
        *_packaged("triton", "backends/nvidia/include"),
    ]
    if nvcc := shutil.which("nvcc") or shutil.which("nvcc", path=":".join(_NVCC_PLACES)):
        places.append(Path(nvcc).resolve().parent.parent / "include")
    places += [Path(f"/usr/local/cuda-{major}/include"), Path("/usr/local/cuda/include")]
    found = [place for place in places if _headers_major(place) == major]
    if major == _SPLIT_MAJOR:
        found += [place for place in _packaged("nvidia", "cuda_nvcc/include") if place.is_dir()]
    return list(dict.fromkeys(str(place.resolve()) for place in found))


def _packaged(package: str, below: str) -> list[Path]:
    """Return where a folder of a Python package would be."""
    spec = find_spec(package)
    return [
        Path(each) / below for each in (spec.submodule_search_locations if spec else None) or ()
    ]


def _headers_major(folder: Path) -> int | None:
    if not (folder / "cuda_fp16.h").is_file():
        return None
    for name, macro in (("cuda.h", "CUDA_VERSION"), ("cuda_runtime_api.h", "CUDART_VERSION")):
        if (folder / name).is_file():
            text = (folder / name).read_text(encoding="utf-8", errors="replace")
            if found := re.search(rf"#define\s+{macro}\s+(\d+)", text):
                return int(found[1]) // 1000
    return None


def _cccl_folders() -> list[str]:
    """Return cupy's copy of libcu++ and CUB, which CUDA's own headers build on."""
    spec = find_spec("cupy")
    inside = "_core/include/cupy/_cccl"
    for folder in (spec.submodule_search_locations if spec else None) or ():
        cccl = Path(folder) / inside
        return [str(cccl / part) for part in ("libcudacxx", "cub") if (cccl / part).is_dir()]
    return []
