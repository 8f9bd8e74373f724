"""Let a Python launcher run without a GPU: shapes without content, and launches that are noted."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from kopt.errors import CandidateError
from kopt.model.verification import Status
from kopt_cuda.architectures import PLAIN_SHARED
from kopt_cuda.binding import ResolvedLaunch
from kopt_cuda.python_kernels import replaced

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

    from kopt.model.values import TensorRef
    from kopt_cuda.architectures import Architecture

_READS = {torch.Tensor.is_cuda.__get__: True, torch.Tensor.device.__get__: torch.device("cuda", 0)}


@dataclass(frozen=True)
class Code:
    """What is compiled together."""

    source: str
    options: tuple[str, ...]
    instance: str = ""
    """Of a template, as ``scale<float>``; it is compiled besides what else the source has."""


@dataclass(frozen=True)
class NotedLaunch:
    """One launch that did not happen."""

    code: Code
    launch: ResolvedLaunch
    opted_in: int
    """Bytes of dynamic shared memory that the launcher has asked for beforehand."""
    line: int | None
    """Of the candidate's file."""


class NotedKernel:
    """In place of a kernel of cupy's."""

    _notes: Notes

    def __init__(
        self, code: str, name: str, options: tuple[str, ...] = (), backend: str = "nvrtc",
        **others: Any,
    ) -> None:  # fmt: skip
        self.name, self.code, self.options, self.backend = name, code, options, backend
        self.max_dynamic_shared_size_bytes = PLAIN_SHARED
        self._code = Code(code, options)

    def __call__(
        self, grid: Any, block: Any, args: Any, *, shared_mem: int = 0, **others: Any
    ) -> None:
        """Note the launch; like cupy, take an extent of 0 for 1."""
        launch = ResolvedLaunch(self.name, _three(grid), _three(block), int(shared_mem), ())
        noted = NotedLaunch(
            self._code, launch, int(self.max_dynamic_shared_size_bytes), self._notes.line()
        )
        self._notes.launches.append(noted)

    def compile(self, log_stream: Any = None) -> None:
        """Everything noted is compiled anyway."""


class NotedRawKernel(NotedKernel):
    """In place of ``cupy.RawKernel``: a source of its own."""

    def __init__(self, code: str, name: str, *arguments: Any, **others: Any) -> None:
        super().__init__(code, name, *arguments, **others)
        self._notes.add(self._code)
        self._notes.wanted.append((self._code, name, self._notes.line()))


class NotedModule:
    """In place of ``cupy.RawModule``."""

    _notes: Notes

    def __init__(
        self, *, code: str | None = None, path: str | None = None, options: tuple[str, ...] = (),
        backend: str = "nvrtc", name_expressions: Any = None, **others: Any,
    ) -> None:  # fmt: skip
        if code is None:
            raise CandidateError(
                Status.UNSUPPORTED, f"RawModule(path={path!r}) is a binary: only a GPU can load it"
            )
        self.code, self.options, self.backend = code, options, backend
        self.name_expressions = tuple(name_expressions or ())
        if not self.name_expressions:
            self._notes.add(Code(code, options))

    def get_function(self, name: str) -> NotedKernel:
        """Return a kernel of the module; an instance of a template is compiled by itself."""
        instance = name if name in self.name_expressions else ""
        code = self._notes.add(Code(self.code, self.options, instance))
        kernel = self._notes.kernel(code, name, self.backend)
        self._notes.wanted.append((code, name, self._notes.line()))
        return kernel

    def compile(self, log_stream: Any = None) -> None:
        """Everything noted is compiled anyway."""


class Notes:
    """What a candidate has made and would have launched."""

    def __init__(self, folder: Path) -> None:
        """``folder``: where the candidate's module lies, to find its lines."""
        self.codes: dict[Code, int | None] = {}
        """With the line of the candidate's file that made each."""
        self.wanted: list[tuple[Code, str, int | None]] = []
        self.launches: list[NotedLaunch] = []
        self._folder = f"{folder}/"
        self._kernel = type("Kernel", (NotedKernel,), {"_notes": self})
        self._raw_kernel = type("RawKernel", (NotedRawKernel,), {"_notes": self})
        self._module = type("RawModule", (NotedModule,), {"_notes": self})

    def add(self, code: Code) -> Code:
        """Note what is to be compiled, once; a module's kernels are in the module."""
        self.codes.setdefault(code, self.line())
        return code

    def kernel(self, code: Code, name: str, backend: str) -> NotedKernel:
        """Return a module's kernel."""
        kernel: NotedKernel = self._kernel(code.source, name, code.options, backend)
        kernel._code = code
        return kernel

    def line(self) -> int | None:
        """Return the line of the candidate's file that is being run."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename.startswith(self._folder):
                return frame.f_lineno
            frame = frame.f_back
        return None

    @contextmanager
    def taking(self, architecture: Architecture) -> Iterator[None]:
        """Run a launcher as if the GPU were there, with tensors that have no content."""
        import cupy

        with ExitStack() as stack:
            same = {"asarray": _same, "from_dlpack": _same}
            stack.enter_context(
                replaced(cupy, RawKernel=self._raw_kernel, RawModule=self._module, **same)
            )
            stack.enter_context(replaced(torch.cuda, **_cuda_functions(architecture)))
            stack.enter_context(_AsCuda())
            yield


class MetaTensors:
    """Opens tensor references as tensors that have shape, strides and type, and no content."""

    def open(self, ref: TensorRef) -> torch.Tensor:
        """Return the tensor; its address is 0."""
        dtype = getattr(torch, ref.dtype)
        return torch.empty_strided(ref.shape, ref.strides, dtype=dtype, device="meta")


class _AsCuda(TorchFunctionMode):
    """Makes what should be on CUDA without content, and says of every tensor that it is on CUDA."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in _READS:
            return _READS[func]
        if func is torch.Tensor.cuda:
            return args[0].to("meta")
        kwargs = {name: _moved(value) for name, value in (kwargs or {}).items()}
        return func(*map(_moved, args), **kwargs)


def _moved(value: Any) -> Any:
    named = isinstance(value, str | torch.device) and str(value).partition(":")[0] == "cuda"
    return torch.device("meta") if named else value


def _same(value: Any, *others: Any, **more: Any) -> Any:
    return value


def _three(extents: Any) -> tuple[int, int, int]:
    first, second, third = (*(max(1, int(each)) for each in extents), 1, 1)[:3]
    return first, second, third


def _cuda_functions(architecture: Architecture) -> dict[str, Any]:
    """Return what replaces the functions of ``torch.cuda`` that launchers call."""
    major, minor = divmod(architecture.capability, 10)
    stream = SimpleNamespace(cuda_stream=0, ptr=0)
    return {
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "get_device_capability": lambda device=None: (major, minor),
        "current_stream": lambda device=None: stream,
        "synchronize": lambda device=None: None,
        "set_device": lambda device: None,
        "device": lambda device: nullcontext(),
    }
