"""Runs CUDA C++ candidates on a CPU, by their own launch plans: what they compute, not how fast."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch

from kopt.model.values import CallSpec, NamedValue, ScalarValue, TensorRef
from kopt_cuda.binding import Resolver
from kopt_cuda.plan import plan_of
from kopt_cuda.signatures import kernels_of
from kopt_torch.tensors import DTYPES, NAMES

HEADERS = Path(__file__).parent / "cuda_on_cpu"
ALL = '#include "cuda_on_cpu.h"\n#include "warpgroup.h"\n'
FLAGS = ("-std=c++20", "-O1", "-fPIC", "-w")


def run(
    candidate: Any,
    outputs: Sequence[tuple[Sequence[int], torch.dtype]],
    arguments: dict[str, Any],
    *,
    state: Sequence[str] = (),
    **knobs: int,
) -> list[torch.Tensor]:
    """Return what a candidate writes into new outputs, full of NaN before.

    ``arguments``: tensors and scalars by name; those in ``state`` are module state.
    """
    chosen = {**candidate.chosen, **knobs}
    memory: list[torch.Tensor] = []
    results = [_garbage(shape, dtype) for shape, dtype in outputs]

    def value(item: Any) -> Any:
        return (
            _reference(item, memory) if isinstance(item, torch.Tensor) else ScalarValue(value=item)
        )

    call = CallSpec(
        arguments=tuple(
            NamedValue(name=name, value=value(item))
            for name, item in arguments.items() if name not in state
        ),
        state={name: value(arguments[name]) for name in state},
        outputs=tuple(_reference(each, memory) for each in results),
    )  # fmt: skip
    kernels = kernels_of(candidate.source, {name: str(each) for name, each in chosen.items()})
    resolver = Resolver(
        candidate.source, plan_of(candidate), kernels, chosen, call,
        lambda ref: memory[ref.segment].data_ptr(),
    )  # fmt: skip
    resolver.check_required()
    for name, (shape, dtype, zeroed) in resolver.scratch().items():
        buffer = (
            torch.zeros(shape, dtype=DTYPES[dtype]) if zeroed else _garbage(shape, DTYPES[dtype])
        )
        memory.append(buffer)
        resolver.add_scratch(name, shape, dtype, buffer.data_ptr())
    with tempfile.TemporaryDirectory() as folder:
        library = ctypes.CDLL(str(_compiled(candidate.source, chosen, list(kernels), Path(folder))))
        for each in resolver.launches():
            pieces = [ctypes.create_string_buffer(piece, len(piece)) for piece in each.arguments]
            given = (ctypes.c_void_p * len(pieces))(*map(ctypes.addressof, pieces))
            shape = (ctypes.c_uint * 9)(*each.grid, *each.block, *(each.cluster or (1, 1, 1)))
            getattr(library, f"kopt_start_{each.kernel}")(
                given, shape, ctypes.c_size_t(each.shared)
            )
    return results


def _garbage(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    made = torch.empty(tuple(shape), dtype=dtype)
    return made.fill_(float("nan")) if dtype.is_floating_point else made.fill_(-1)


def _reference(tensor: torch.Tensor, memory: list[torch.Tensor]) -> TensorRef:
    memory.append(tensor)
    return TensorRef(
        segment=len(memory) - 1, offset=0, dtype=NAMES[tensor.dtype], shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()) if prod(tensor.shape) else (0,) * tensor.dim(),
    )  # fmt: skip


def _compiled(source: str, knobs: dict[str, Any], kernels: list[str], folder: Path) -> Path:
    """Compile a CUDA file with g++ against headers that make threads coroutines."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    shared = re.sub(
        r"extern\s+__shared__\s+(?:__align__\(\d+\)\s+)?(.+?)\s*(\w+)\[\];",
        r"\1 *const \2 = reinterpret_cast<\1 *>(kopt_on_cpu::running->home->shared.data());", source,
    )  # fmt: skip
    # What is one instruction of a warp is in the headers, by the same name.
    shared = re.sub(
        r"__device__ __forceinline__ \w+ \w+\([^{]*\{(?:(?!\n(\}\n|__device__|struct)).)*?\basm\b.*?\n\}\n",
        "", shared, flags=re.DOTALL,
    )  # fmt: skip
    starts = [
        f'extern "C" void kopt_start_{name}(void **given, const unsigned *shape, size_t shared) '
        f"{{ kopt_on_cpu::start({name}, given, shape, shared); }}"
        for name in kernels
    ]
    (folder / "kernel.cpp").write_text("\n".join(['#include "all.h"', shared, *starts]))
    library = folder / "kernel.so"
    defined = [f"-D{name}={value}" for name, value in knobs.items()]
    done = subprocess.run(
        [compiler, *FLAGS, "-shared", f"-I{_precompiled(compiler)}", f"-I{HEADERS}", *defined,
         str(folder / "kernel.cpp"), "-o", str(library)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr[:4000]
    return library


def _precompiled(compiler: str) -> Path:
    """Return the folder of the headers' precompiled form, made once for all tests of a session.

    A kernel is compiled in a third of the time with it.
    """
    folder = Path(os.environ["CUDA_ON_CPU_PRECOMPILED"])
    header, done = folder / "all.h", folder / "all.h.gch"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            header.write_text(ALL)
            part = folder / "part"
            command = [compiler, *FLAGS, f"-I{HEADERS}", "-x", "c++-header", str(header)]
            subprocess.run([*command, "-o", str(part)], check=True)
            part.rename(done)
    return folder
