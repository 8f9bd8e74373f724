"""Candidates that are really built here, by the backends, with their listings as a probe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import pytest

from kopt.errors import CandidateError
from kopt.model.diagnosis import Profile
from kopt.model.evaluation import Evaluation
from kopt.model.kernel_file import parse_kernel
from kopt.model.probe import Timeline, UnderTool
from kopt.model.values import CallSpec, NamedValue, TensorRef
from kopt.model.verification import Status
from kopt.runs.builds import BuildCache
from kopt.testing import records
from kopt.worker.candidate import WorkerContext
from kopt_static import Static


class Listings:
    """A probe of an executable: its listings, without those that a machine is to lack."""

    def __init__(self, executable: Any, call: CallSpec, missing: Sequence[str] = ()) -> None:
        self._executable, self._call, self.missing = executable, call, tuple(missing)

    def under(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        calls: int = 1,
        seconds: float = 120.0,
    ) -> UnderTool:
        raise AssertionError("a static profiler runs nothing")

    def timeline(self, calls: int = 10) -> Timeline | None:
        raise AssertionError("a static profiler runs nothing")

    def listing(self, kind: str) -> dict[str, str]:
        if kind in self.missing or kind not in self._executable.listing_kinds:
            raise CandidateError(Status.UNSUPPORTED, f"no tool for {kind}")
        return self._executable.listing(kind, self._call)


class Built:
    """A candidate with its build and its probe."""

    def __init__(self, evaluation: Evaluation, probe: Listings) -> None:
        self.evaluation, self.probe = evaluation, probe

    def with_probe(self, probe: Listings) -> Built:
        return Built(self.evaluation, probe)

    def profile(self, gpu: bool = True) -> Profile:
        device = records.gpu() if gpu else records.cpu()
        found = Static().kopt_profile(self.evaluation, device, self.probe)
        assert found is not None
        return found

    def kernels(self, gpu: bool = True) -> dict[str, dict[str, float]]:
        """Return the metrics of each kernel, by its name."""
        return {
            kernel.name: {metric.name: metric.value for metric in kernel.metrics}
            for kernel in self.profile(gpu).kernels
        }


def _tensor(shape: tuple[int, ...], dtype: str) -> TensorRef:
    strides = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return TensorRef(segment=0, offset=0, dtype=dtype, shape=shape, strides=strides)


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Built]:
    """Return a function that builds a source for an architecture."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")

    def make(
        source: str, language: str, shape: tuple[int, ...], dtype: str = "float32", *,
        arguments: int = 1, architecture: str = "sm_90", missing: Sequence[str] = (),
    ) -> Built:  # fmt: skip
        """``shape`` and ``dtype``: of each of the ``arguments``, a, b, ..., and of the output."""
        ref = _tensor(shape, dtype)
        named = tuple(NamedValue(name=name, value=ref) for name in "abcd"[:arguments])
        call = CallSpec(arguments=named, outputs=(ref,))
        candidate = parse_kernel(source, language)
        context = WorkerContext(records.cpu(), architecture, (), BuildCache(tmp_path / "builds"))
        executable = _backend(language).kopt_build(
            **{"candidate": candidate, "context": context}
            | ({} if language == "triton" else {"problem": None})
        )
        if language != "cpp":
            executable.ahead_of_time(call)
        measured = records.measured(candidate, 1.0)
        evaluation = measured.model_copy(update={"build": executable.build})
        return Built(evaluation, Listings(executable, call, missing))

    return make


def _backend(language: str) -> Any:
    if language == "cpp":
        module = pytest.importorskip("kopt_cpp")
        return module.CppBackend(module.CppBackend.Options())
    if language == "triton":
        pytest.importorskip("triton")
        return pytest.importorskip("kopt_triton").TritonBackend()
    from kopt_cuda.toolchain import find_toolchain

    if find_toolchain(None) is None:
        pytest.skip("no compiler for CUDA C++: neither NVRTC with cupy nor nvcc")
    module = pytest.importorskip("kopt_cuda")
    return module.CudaBackend(module.CudaBackend.Options())
