"""What a candidate of the Python form makes through cupy: kept for a report, at no later cost."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kopt_cuda.resources import KernelResources

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def replaced(owner: Any, **values: Any) -> Iterator[None]:
    """Set attributes for a while."""
    before = {name: getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


class CompiledKernels:
    """The kernels that one candidate has compiled: launched ones, and those of ``get_function``."""

    def __init__(self) -> None:
        import cupy

        self._found: dict[tuple[Any, ...], Any] = {}
        self._reported = 0
        self._kernel = _kernel_class(cupy.RawKernel, self._add)
        self._module = _module_class(cupy.RawModule, self._add)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note kernels whose maker is looked up in cupy meanwhile; they stay noted afterwards."""
        import cupy

        with replaced(cupy, RawKernel=self._kernel, RawModule=self._module):
            yield

    def _add(self, kernel: Any) -> None:
        self._found.setdefault((kernel.name, kernel.options, kernel.code), kernel)

    def changed(self) -> bool:
        """Return whether there are more than in the last report."""
        return len(self._found) != self._reported

    def resources(self, architecture: str) -> list[KernelResources]:
        """Return what the driver says of each kernel, in the order in which they came.

        It does not know spills by themselves: they are a part of ``stack_bytes``.
        """
        self._reported = len(self._found)
        return [_of_driver(kernel, architecture) for kernel in self._found.values()]


def _of_driver(kernel: Any, architecture: str) -> KernelResources:
    return KernelResources(
        name=kernel.name, architecture=architecture, registers=kernel.num_regs, spill_bytes=None,
        stack_bytes=kernel.local_size_bytes, static_shared_bytes=kernel.shared_size_bytes,
        constant_bytes=kernel.const_size_bytes, shared_bytes=kernel.shared_size_bytes,
    )  # fmt: skip


def _kernel_class(base: Any, add: Any) -> Any:
    class Launched(base):
        """A kernel that was launched before: cupy's own, with nothing between."""

    class RawKernel(base):
        """A kernel that is noted when it is first launched, which is what compiles it."""

        def __call__(self, *arguments: Any, **keywords: Any) -> Any:
            result = base.__call__(self, *arguments, **keywords)
            self.__class__ = Launched  # further launches are timed
            add(self)
            return result

    return RawKernel


def _module_class(base: Any, add: Any) -> Any:
    class RawModule(base):
        """A module whose kernels are noted when they are got, which is what compiles them."""

        def get_function(self, name: str) -> Any:
            kernel = base.get_function(self, name)
            add(kernel)
            return kernel

    return RawModule
