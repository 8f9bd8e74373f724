"""Launching through the CUDA driver: calls that are prepared once, clusters included."""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING

from kopt.errors import CandidateError
from kopt.model.verification import Status
from kopt_cuda.architectures import MOST_CLUSTER

if TYPE_CHECKING:
    from kopt_cuda.binding import ResolvedLaunch

_CLUSTER_DIMENSION = 4
_NON_PORTABLE_CLUSTER = 14
_STATUS = {
    2: Status.OOM, 700: Status.ILLEGAL_ACCESS, 716: Status.ILLEGAL_ACCESS,
    718: Status.ILLEGAL_ACCESS,
}  # fmt: skip


class LaunchAttribute(ctypes.Structure):
    """``CUlaunchAttribute``, with the value of a cluster's dimensions."""

    _fields_ = (
        ("id", ctypes.c_int), ("padding", ctypes.c_char * 4), ("cluster", ctypes.c_uint * 3),
        ("rest", ctypes.c_char * 52),
    )  # fmt: skip


class LaunchConfig(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("attribute_count", ctypes.c_uint),
    )  # fmt: skip


@functools.cache
def _library() -> ctypes.CDLL:
    return declared(ctypes.CDLL("libcuda.so.1"))


def declared(library: ctypes.CDLL) -> ctypes.CDLL:
    """Return the driver's library with the types of the functions that are used of it."""
    library.cuLaunchKernelEx.argtypes = (
        ctypes.POINTER(LaunchConfig), ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_void_p,
    )  # fmt: skip
    library.cuMemsetD8Async.argtypes = (
        ctypes.c_uint64, ctypes.c_ubyte, ctypes.c_size_t, ctypes.c_void_p,
    )  # fmt: skip
    library.cuFuncSetAttribute.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
    library.cuGetErrorName.argtypes = (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p))
    library.cuGetErrorString.argtypes = (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p))
    return library


class PreparedLaunch:
    """One launch whose configuration and arguments lie ready in the form of the driver."""

    def __init__(self, function: int, launch: ResolvedLaunch) -> None:
        """``function``: the driver's handle of the loaded kernel."""
        self._name = launch.kernel
        self._function = function
        self._buffers = [ctypes.create_string_buffer(each, len(each)) for each in launch.arguments]
        addresses = [ctypes.addressof(buffer) for buffer in self._buffers]
        self._arguments = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        self._config = LaunchConfig(
            grid=(ctypes.c_uint * 3)(*launch.grid), block=(ctypes.c_uint * 3)(*launch.block),
            shared=launch.shared,
        )  # fmt: skip
        if launch.cluster is not None:
            self._form_clusters(launch.cluster)
        self._start = _library().cuLaunchKernelEx

    def _form_clusters(self, cluster: tuple[int, int, int]) -> None:
        self._attribute = LaunchAttribute(
            id=_CLUSTER_DIMENSION, cluster=(ctypes.c_uint * 3)(*cluster)
        )
        self._config.attributes = ctypes.pointer(self._attribute)
        self._config.attribute_count = 1
        if cluster[0] * cluster[1] * cluster[2] > MOST_CLUSTER:
            checked(
                _library().cuFuncSetAttribute(self._function, _NON_PORTABLE_CLUSTER, 1),
                f"kernel {self._name}: clusters of more than {MOST_CLUSTER} blocks",
            )

    def __call__(self, stream: int) -> None:
        """Start it on a stream. Raises CandidateError where the driver refuses."""
        self._config.stream = stream
        code = self._start(ctypes.byref(self._config), self._function, self._arguments, None)
        if code:
            checked(code, f"kernel {self._name}")


def zero(address: int, nbytes: int, stream: int) -> None:
    """Fill device memory with zeros, on a stream."""
    checked(_library().cuMemsetD8Async(address, 0, nbytes, stream), "zeroing scratch memory")


def checked(code: int, what: str) -> None:
    """Raise CandidateError for a driver's error code; 0 is none."""
    if code == 0:
        return
    library = _library()
    name, text = ctypes.c_char_p(), ctypes.c_char_p()
    library.cuGetErrorName(code, ctypes.byref(name))
    library.cuGetErrorString(code, ctypes.byref(text))
    said = f"{(name.value or b'unknown').decode()}: {(text.value or b'').decode()}"
    raise CandidateError(_STATUS.get(code, Status.LAUNCH_FAILED), f"{what}: {said} ({code})")
