"""Kernels, calls of tensors that exist nowhere, and a build context for the CUDA backend's tests."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest

from kopt.model.candidate import Candidate
from kopt.model.kernel_file import load_kernel, parse_kernel
from kopt.model.values import CallSpec, NamedValue, ScalarValue, TensorRef
from kopt.runs.builds import BuildCache
from kopt.testing import records
from kopt.worker.candidate import WorkerContext
from kopt_cuda import CudaBackend
from kopt_cuda.toolchain import find_toolchain

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = {
        kind: pytest.mark.skip(reason=f"no {kind} here; pip install 'kopt-cuda[cuda12]'")
        for kind in ("nvrtc", "nvcc")
        if find_toolchain(kind) is None
    }
    none = pytest.mark.skip(reason="no compiler for CUDA C++: neither NVRTC with cupy nor nvcc")
    without_gpu = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if HERE not in item.path.parents:
            continue
        names = getattr(item, "fixturenames", ())
        if (item.get_closest_marker("gpu") or "bench" in names) and not _has_gpu():
            item.add_marker(without_gpu)
        if "build" in names and len(missing) == 2:
            item.add_marker(none)
        wanted = getattr(getattr(item, "callspec", None), "params", {}).get("compiler")
        if wanted in missing:
            item.add_marker(missing[wanted])


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


class Calls:
    """Makes calls of tensors that exist nowhere."""

    def tensor(self, shape: tuple[int, ...], dtype: str = "float32", **changes: Any) -> TensorRef:
        strides = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
        given = {"segment": 0, "offset": 0, "dtype": dtype, "shape": shape, "strides": strides}
        return TensorRef(**given | changes)

    def of(self, outputs: tuple[TensorRef, ...] = (), **arguments: Any) -> CallSpec:
        named = tuple(
            NamedValue(
                name=name, value=item if isinstance(item, TensorRef) else ScalarValue(value=item)
            )
            for name, item in arguments.items()
        )
        return CallSpec(arguments=named, outputs=outputs)

    def vectors(self, n: int = 1000, dtype: str = "float32") -> CallSpec:
        return self.of((self.tensor((n,), dtype),), x=self.tensor((n,), dtype))


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Any]:
    """Return a function that builds a source, or a kernel file of the tests, for an architecture."""

    def make(
        kernel: str | Path | Candidate, architecture: str = "sm_90", *, gpu: bool = False,
        knobs: dict[str, Any] | None = None, **options: Any,
    ) -> Any:  # fmt: skip
        if isinstance(kernel, Path):
            kernel = load_kernel(kernel)
        elif isinstance(kernel, str):
            kernel = parse_kernel(kernel, "cuda")
        if knobs:
            kernel = kernel.with_values("test", **knobs)
        device = records.gpu() if gpu else records.cpu()
        if gpu:
            device = device.model_copy(update={"architecture": architecture})
        context = WorkerContext(device, architecture, (), BuildCache(tmp_path / "builds"))
        return CudaBackend(CudaBackend.Options(**options)).kopt_build(None, kernel, context)

    return make


@pytest.fixture
def here() -> str:
    """The architecture of this machine's GPU, as ``sm_90``."""
    import torch

    pytest.importorskip("cupy")
    torch.cuda.init()
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"
