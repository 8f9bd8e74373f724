"""The Triton backend keeps the contract of backends: in the interpreter, and on a GPU."""

from __future__ import annotations

from typing import ClassVar

import pytest

from kopt.testing import BackendContract
from kopt_triton import TritonBackend

pytest.importorskip("triton")

_SOURCE = """\
# /// kopt
# entry = "run"
# [knobs]
# BLOCK = [64, 32]
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, first, second, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < n
    a = tl.load(x + at, mask=keep)
    b = tl.load(y + at, mask=keep)
    {body}


def run({parameters}, BLOCK):
    {before}
    kernel[(triton.cdiv(x.numel(), BLOCK),)](x, {arguments}, x.numel(), {factor}, BLOCK=BLOCK)
    {after}
"""


def source(
    parameters: str, arguments: str, body: str, before: str, after: str, factor="1.0"
) -> str:
    return _SOURCE.format(
        parameters=parameters, arguments=arguments, body=body, before=before, after=after,
        factor=factor,
    )  # fmt: skip


class Kernels(BackendContract):
    language = "triton"
    add = source(
        "x, y, *", "y, out, out", "tl.store(first + at, a + b, mask=keep)",
        "out = torch.empty_like(x)", "return out",
    )  # fmt: skip
    two_outputs = source(
        "x, y, *", "y, total, apart",
        "tl.store(first + at, a + b, mask=keep)\n"
        "    tl.store(second + at, a - b, mask=keep)",
        "total, apart = torch.empty_like(x), torch.empty_like(x)", "return total, apart",
    )  # fmt: skip
    integers = source(
        "n, *", "x, out, out", "tl.store(first + at, 2 * a + 1, mask=keep)",
        "x = n; out = torch.empty_like(n)", "return out",
    )  # fmt: skip
    in_place = source(
        "x, y, *", "y, x, x", "tl.store(first + at, a + b, mask=keep)", "", "return None"
    )
    scaled = source(
        "x, *, factor", "x, out, out", "tl.store(first + at, a * factor, mask=keep)",
        "out = torch.empty_like(x)", "return out", "factor",
    )  # fmt: skip
    constant = source(
        "x, *", "x, out, out", "tl.store(first + at, a * FACTOR, mask=keep)",
        "out = torch.empty_like(x)", "return out",
    ).replace("@triton.jit", "FACTOR = tl.constexpr(2.5)\n\n\n@triton.jit")  # fmt: skip
    endless = source(
        "x, *", "x, out, out",
        "tl.store(first + at, a * 0 + 1, mask=keep)\n"
        "    while tl.load(first + tl.program_id(0), volatile=True) > 0:\n"
        "        pass",
        "out = torch.empty_like(x)", "return out",
    )  # fmt: skip
    comment = "#"
    broken = add.replace("a + b", "a +")
    complaint: ClassVar[str] = r"line \d+"

    def plugin(self) -> TritonBackend:
        return TritonBackend()


class TestInterpreted(Kernels):
    pass


@pytest.mark.gpu
class TestOnAGpu(Kernels):
    device = "cuda"
