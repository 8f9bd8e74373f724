"""A program that copies a known number of bytes on the GPU, between profiler start and stop.

It needs the driver alone (libcuda): ``python -m kopt_ncu.copy_kernel BYTES``.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

THREADS = 256
BYTES_PER_THREAD = 16
NAME = "kopt_copy"
_PATTERN = 0x5A
PTX = f"""\
.version 7.0
.target sm_70
.address_size 64
.visible .entry {NAME}(.param .u64 source, .param .u64 target)
{{
    .reg .b32 %r<5>;
    .reg .b64 %rd<8>;
    .reg .f32 %f<5>;
    ld.param.u64 %rd1, [source];
    ld.param.u64 %rd2, [target];
    cvta.to.global.u64 %rd3, %rd1;
    cvta.to.global.u64 %rd4, %rd2;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    mul.wide.u32 %rd5, %r4, {BYTES_PER_THREAD};
    add.s64 %rd6, %rd3, %rd5;
    add.s64 %rd7, %rd4, %rd5;
    ld.global.v4.f32 {{%f1, %f2, %f3, %f4}}, [%rd6];
    st.global.v4.f32 [%rd7], {{%f1, %f2, %f3, %f4}};
    ret;
}}
"""
"""Each thread copies 16 bytes; there are no threads beyond the end."""


class _Driver:
    """CUDA's driver; each call ends the program where it fails."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._library, name)

        def call(*arguments: Any) -> None:
            code = function(*arguments)
            if code != 0:
                raise SystemExit(f"{name} returned {code} (CUresult, see cuda.h)")

        return call


def copy(size: int) -> None:
    """Copy ``size`` bytes twice, the second time with the profiler on, and check the last of them.

    :param size: a multiple of 4096. Raises OSError where there is no driver, SystemExit where a
        call of the driver fails or the copy is wrong.
    """
    cuda = _Driver()
    device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    function, source, target = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
    cuda.cuInit(0)
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    cuda.cuCtxSetCurrent(context)
    cuda.cuModuleLoadData(ctypes.byref(module), ctypes.c_char_p(PTX.encode()))
    cuda.cuModuleGetFunction(ctypes.byref(function), module, ctypes.c_char_p(NAME.encode()))
    for buffer, value in ((source, _PATTERN), (target, 0)):
        cuda.cuMemAlloc_v2(ctypes.byref(buffer), ctypes.c_size_t(size))
        cuda.cuMemsetD8_v2(buffer, ctypes.c_ubyte(value), ctypes.c_size_t(size))
    parameters = (ctypes.c_void_p * 2)(*(ctypes.addressof(each) for each in (source, target)))
    blocks = size // BYTES_PER_THREAD // THREADS

    def launch() -> None:
        shape = (blocks, 1, 1, THREADS, 1, 1, 0)
        cuda.cuLaunchKernel(function, *shape, ctypes.c_void_p(), parameters, ctypes.c_void_p())
        cuda.cuCtxSynchronize()

    launch()
    cuda.cuProfilerStart()
    launch()
    cuda.cuProfilerStop()
    last = (ctypes.c_ubyte * 64)()
    end = ctypes.c_uint64(target.value + size - len(last))
    cuda.cuMemcpyDtoH_v2(last, end, ctypes.c_size_t(len(last)))
    if bytes(last) != bytes([_PATTERN]) * len(last):
        raise SystemExit("the copy is wrong: the end of the target is not that of the source")


if __name__ == "__main__":
    copy(int(sys.argv[1]))
