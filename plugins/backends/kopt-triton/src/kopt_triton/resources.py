"""What compiled kernels use of a GPU: registers, spills, shared memory, code size."""

from __future__ import annotations

import gc
import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import triton
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from kopt.model.record import Record
from kopt.runs.binaries import binary_id
from kopt_triton.architectures import Architecture

_TOOL_SECONDS = 120


class KernelResources(Record):
    """One compiled specialization of one kernel."""

    name: str
    architecture: str
    """As ``sm_90``."""
    registers: int | None
    """Of 32 bits, per thread; None where the tool did not say."""
    spill_bytes: int | None
    """Spill stores plus loads per thread, as ptxas counts them; on a GPU, local memory bytes."""
    shared_bytes: int
    """Shared memory per block."""
    num_warps: int
    num_stages: int
    constants: dict[str, str]
    """Compile-time arguments, by parameter."""
    ptx_bytes: int
    binary_bytes: int
    limits_exceeded: tuple[str, ...] = ()
    """Why a block cannot start on that architecture; empty: it can."""


def _order(item: KernelResources) -> tuple[object, ...]:
    return item.name, item.num_warps, item.num_stages, sorted(item.constants.items())


def in_order(kernels: Iterable[KernelResources]) -> list[KernelResources]:
    """Return kernels by name, warps, stages and constants."""
    return sorted(kernels, key=_order)


def constants_of(kernel: Any) -> dict[str, str]:
    """Return a compiled kernel's compile-time arguments, by parameter."""
    # Keys are paths into the arguments; in Triton 3.2, names or numbers.
    names = kernel.src.fn.arg_names
    found = {}
    for key, value in getattr(kernel.src, "constants", {}).items():
        place = key[0] if isinstance(key, tuple) else key
        name = place if isinstance(place, str) else names[place]
        found[name] = str(getattr(value, "value", value))
    return found


_UNITS = {"shared memory": "bytes", "tensor memory": "columns"}


def _record(
    kernel: Any,
    architecture: str,
    registers: int | None,
    spill_bytes: int | None,
    beyond: Iterable[tuple[str, int, int]] = (),
) -> KernelResources:
    metadata = kernel.metadata
    exceeded = [f"{name}: {needed} of {limit} {_UNITS[name]}" for name, needed, limit in beyond]
    return KernelResources(
        name=metadata.name,
        architecture=architecture,
        registers=registers,
        spill_bytes=spill_bytes,
        shared_bytes=metadata.shared,
        num_warps=metadata.num_warps,
        num_stages=metadata.num_stages,
        constants=constants_of(kernel),
        ptx_bytes=len(kernel.asm["ptx"]),
        binary_bytes=len(kernel.asm["cubin"]),
        limits_exceeded=tuple(exceeded),
    )


def bundled(name: str) -> str:
    """Return the path of one of the CUDA tools that are part of Triton."""
    return str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name)


def _output(command: list[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_TOOL_SECONDS, check=False
    )
    return done.stdout + done.stderr


def _registers(kernel: Any, folder: Path) -> int | None:
    path = folder / "kernel.cubin"
    path.write_bytes(kernel.asm["cubin"])
    found = re.findall(
        r"\bREG:(\d+)", _output([bundled("cuobjdump"), "--dump-resource-usage", str(path)])
    )
    return max(map(int, found)) if found else None


def _spill_bytes(kernel: Any, architecture: Architecture, folder: Path) -> int | None:
    path = folder / "kernel.ptx"
    path.write_text(kernel.asm["ptx"])
    options = ["-v", f"--gpu-name={architecture.assembler_name}", str(path)]
    options += ["-o", str(folder / "again.cubin")]
    if not getattr(kernel.metadata, "enable_fp_fusion", True):
        options.append("--fmad=false")
    # Which assembler takes which PTX changes with Triton's version: the older one is tried first.
    for tool in (bundled("ptxas"), bundled("ptxas-blackwell")):
        log = _output([tool, *options]) if Path(tool).exists() else ""
        if found := re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log):
            return max(int(stores) + int(loads) for stores, loads in found)
    return None


def from_tools(kernel: Any, architecture: Architecture) -> KernelResources:
    """Return what a kernel that was compiled ahead of time uses (Triton's cuobjdump and ptxas)."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        registers = _registers(kernel, folder)
        spills = _spill_bytes(kernel, architecture, folder)
    beyond = architecture.beyond(kernel.metadata)
    return _record(kernel, architecture.name, registers, spills, beyond)


def from_device(kernel: Any) -> KernelResources:
    """Return what a kernel that has run uses, as the driver said when it was loaded."""
    words = getattr(kernel, "n_spills", None)
    return _record(
        kernel,
        f"sm_{kernel.metadata.target.arch}",
        getattr(kernel, "n_regs", None),
        None if words is None else 4 * words,
    )  # it ran: no limit was exceeded


class LoadedKernels:
    """The kernels of one candidate module that this process has compiled and loaded."""

    def __init__(self, module: str) -> None:
        # Two imports of one source have one name; the namespace tells them apart.
        self._namespace = vars(sys.modules[module]) if module in sys.modules else {}
        self._functions: list[Any] = []
        self._tuners: list[Any] = []
        self._count = 0

    def changed(self) -> bool:
        """Whether kernels were loaded since the last time this was asked."""
        if not self._functions:
            self._functions = list(self._of_module(JITFunction))
            self._tuners = list(self._of_module(Autotuner))
        before, self._count = self._count, len(self._loaded())
        return before != self._count

    def _of_module(self, kind: type) -> Iterator[Any]:
        # Kernels may sit in closures, classes or lists: whatever the collector tracks is found.
        for item in gc.get_objects():
            if issubclass(type(item), kind):
                inner = item
                while hasattr(inner, "fn"):
                    inner = inner.fn
                if getattr(inner, "__globals__", None) is self._namespace:
                    yield item

    def _loaded(self) -> list[Any]:
        found: list[Any] = []
        for function in self._functions:
            caches = getattr(function, "device_caches", None) or getattr(function, "cache", {})
            for entry in list(caches.values()):
                kernels = entry[0] if isinstance(entry, tuple) else entry
                found += [item for item in kernels.values() if getattr(item, "module", None)]
        return found

    def resources(self) -> list[KernelResources]:
        """Return what each kernel uses."""
        return in_order(from_device(item) for item in self._loaded())

    def binary_id(self) -> str:
        """Return one hash of all binaries; empty where there are none."""
        digests = {binary_id(item.asm["cubin"]) for item in self._loaded()}
        return hashlib.sha256("".join(sorted(digests)).encode()).hexdigest()[:16] if digests else ""

    def configurations(self) -> dict[str, str]:
        """Return what each autotuned kernel settled on, by the kernel's name."""
        return {
            item.base_fn.__name__: str(item.best_config)
            for item in self._tuners
            if getattr(item, "best_config", None) is not None
        }
