"""Let host code that was written for a GPU run without one: its tensors go to another device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch.overrides import TorchFunctionMode
from triton.backends.compiler import GPUTarget

from kopt_triton.architectures import Architecture

_CUDA = torch.device("cuda", 0)


@contextmanager
def replaced(owner: object, name: str, value: object) -> Iterator[None]:
    """Set an attribute for a while."""
    space = vars(owner)
    had, old = name in space, space.get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if had:
            setattr(owner, name, old)
        else:
            delattr(owner, name)


class StandInDriver:
    """Tells Triton of a GPU that is not there, so that it compiles for it. Launches nothing."""

    def __init__(self, architecture: Architecture, device: str) -> None:
        self._architecture = architecture
        self._device = device
        self.utils = SimpleNamespace(get_device_properties=self._properties)

    def get_current_target(self) -> GPUTarget:
        """Return what to compile for."""
        return GPUTarget("cuda", self._architecture.capability, 32)

    def get_current_device(self) -> int:
        """Return a device number of its own per architecture: Triton keeps kernels by number."""
        return 1000 + self._architecture.capability

    def get_current_stream(self, device: int) -> int:
        """Return the default stream."""
        return 0

    def get_active_torch_device(self) -> torch.device:
        """Return where host code should put its tensors."""
        return torch.device(self._device)

    def get_benchmarker(self) -> Callable[..., object]:
        """Return what refuses to time: asked for at import by autotuned kernels in Triton 3.2."""

        def refuse(*args: object, **kwargs: object) -> object:
            raise RuntimeError("nothing can be timed without a GPU")

        return refuse

    def _properties(self, device: int) -> dict[str, int]:
        return {
            "max_shared_mem": self._architecture.shared_bytes,
            "max_num_regs": self._architecture.registers,
            "multiprocessor_count": self._architecture.units,
            "warpSize": 32,
        }


class _AsCuda(TorchFunctionMode):
    """Sends what asks for a CUDA device to ``device``, and says that tensors are on CUDA."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = torch.device(device)
        self._reads = {
            torch.Tensor.is_cuda.__get__: True,
            torch.Tensor.device.__get__: _CUDA,
        }

    def _moved(self, value: Any) -> Any:
        if isinstance(value, torch.device) and value.type == "cuda":
            return self._device
        if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
            return self._device
        return value

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in self._reads:
            return self._reads[func]
        if func is torch.Tensor.cuda:
            return args[0].to(self._device)
        kwargs = {name: self._moved(value) for name, value in (kwargs or {}).items()}
        return func(*(self._moved(value) for value in args), **kwargs)


def _cuda_functions(architecture: Architecture) -> dict[str, Any]:
    """Return what replaces the functions of ``torch.cuda`` that host code of kernels calls."""
    major, minor = divmod(architecture.capability, 10)
    properties = SimpleNamespace(
        name=f"{architecture.name} (not present)",
        major=major,
        minor=minor,
        multi_processor_count=architecture.units,
        shared_memory_per_block_optin=architecture.shared_bytes,
        regs_per_multiprocessor=architecture.registers,
        warp_size=32,
    )
    return {
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "get_device_capability": lambda device=None: (major, minor),
        "get_device_properties": lambda device=None: properties,
        "get_device_name": lambda device=None: properties.name,
        "synchronize": lambda device=None: None,
        "set_device": lambda device: None,
        "device": lambda device: nullcontext(),
    }


@contextmanager
def gpu_stand_in(architecture: Architecture, device: str) -> Iterator[None]:
    """Run host code of a kernel as if ``architecture`` were there.

    :param device: where its "cuda" tensors really go: ``cpu`` or ``meta`` (shapes only).
    """
    config = triton.runtime.driver
    slot = "_active" if "_active" in vars(config) else "active"
    with ExitStack() as stack:
        stack.enter_context(replaced(config, slot, StandInDriver(architecture, device)))
        for name, function in _cuda_functions(architecture).items():
            stack.enter_context(replaced(torch.cuda, name, function))
        stack.enter_context(_AsCuda(device))
        yield
