"""Candidates, calls in real shared memory, and a build context for the Triton backend's tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from kopt.model.device import Device
from kopt.model.kernel_file import parse_kernel
from kopt.model.values import CallSpec, NamedValue, ScalarValue, TensorRef
from kopt.worker.segments import MappedMemory
from kopt_torch.tensors import NAMES, SharedTensor
from kopt_triton import TritonBackend

IMPORTS = "import torch\nimport triton\nimport triton.language as tl\n\n"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "triton-cache"))
    # Newer versions of Triton warn where this is left to them.
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def device(kind: str) -> Device:
    return Device(kind=kind, name="test", architecture="x", units=1, memory_bytes=1, cache_bytes=1)


@dataclass
class Context:
    """A build context over a temporary folder, without a cache."""

    folder: Path
    device: Device | None = field(default_factory=lambda: device("cpu"))
    architecture: str = "native"
    argument_names: tuple[str, ...] = ()

    def cached(self, key: str) -> Path | None:
        return None

    def keep(self, key: str, folder: Path) -> Path:
        return folder

    def scratch(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.folder))


class SharedMemory(MappedMemory):
    """Both sides of a call: tensors in the judge's segments, and the candidate's view of them."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: dict[int, SharedTensor] = {}

    def share(self, value: Any) -> TensorRef:
        made = SharedTensor(tuple(value.shape), value.dtype, "cpu")
        made.tensor.copy_(value)
        announcement, (descriptor,) = made.segment.announcement()
        self.attach(announcement, [os.dup(descriptor)])
        self.tensors[made.segment.id] = made
        return made.ref()

    def read(self, ref: TensorRef) -> Any:
        return self.tensors[ref.segment].tensor

    def call(self, *arguments: Any, outputs: list[Any], **extra: Any) -> CallSpec:
        named = tuple(
            NamedValue(
                name=f"a{index}",
                value=self.share(item) if torch.is_tensor(item) else ScalarValue(value=item),
            )
            for index, item in enumerate(arguments)
        )
        return CallSpec(arguments=named, outputs=tuple(map(self.share, outputs)), **extra)


def _shapes_only(*tensors: tuple[tuple[int, ...], Any], outputs: int = 1) -> CallSpec:
    refs = []
    for number, (shape, dtype) in enumerate(tensors):
        strides = torch.empty(shape, device="meta").stride()
        refs.append(
            TensorRef(segment=number, offset=0, dtype=NAMES[dtype], shape=shape, strides=strides)
        )
    arguments = [NamedValue(name=f"a{n}", value=ref) for n, ref in enumerate(refs[:-outputs])]
    return CallSpec(arguments=tuple(arguments), outputs=tuple(refs[-outputs:]))


@pytest.fixture
def shapes_only() -> Callable[..., CallSpec]:
    """Return a function that makes a call of tensors that exist nowhere; the last are outputs."""
    return _shapes_only


@pytest.fixture
def memory() -> SharedMemory:
    return SharedMemory()


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Any]:
    """Return a function that builds a Triton source (its imports are added)."""

    def make(source: str, *, kind: str | None = "cpu", architecture: str = "native") -> Any:
        candidate = parse_kernel(IMPORTS + source, "triton")
        context = Context(
            tmp_path, device=None if kind is None else device(kind), architecture=architecture
        )
        return TritonBackend().kopt_build(candidate, context)

    return make
