"""The interpreter's own internals do not look like delegation; PyTorch in the launcher does."""

from __future__ import annotations

import pytest
import torch

from kopt.errors import CandidateError
from kopt.model.verification import Status

pytest.importorskip("triton")

ADD = """
@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < n
    total = tl.exp(tl.load(x + at, mask=keep)) + tl.load(y + at, mask=keep)
    tl.store(out + at, total, mask=keep)

def kernel_function(x, y):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)
    return out
"""
ASSEMBLY = ADD.replace(
    "tl.exp(", "tl.inline_asm_elementwise('ex2.approx.f32 $0, $1;', '=f,f', ["
).replace("mask=keep)) +", "mask=keep)], dtype=tl.float32, is_pure=True, pack=1) +")
DEPENDENT = ADD.replace("    total =", "    tl.extra.cuda.gdc_wait()\n    total =")
DELEGATED = ADD.replace("return out", "return torch.exp(x) + y")


@pytest.mark.parametrize(("source", "expected"), [(ADD, set()), (DELEGATED, {"exp", "add"})])
def test_what_an_interpreted_kernel_uses(build, memory, source, expected):
    x, y = torch.randn(300), torch.randn(300)
    executable = build(source)
    bound = executable.bind(memory.call(x, y, outputs=[torch.zeros(300)]), memory)
    used = executable.origin(bound).operators
    assert {use.name.rpartition("::")[2] for use in used if not use.moves_only} == expected
    assert any(use.moves_only for use in used)


@pytest.mark.parametrize(
    ("source", "word"), [(ASSEMBLY, "inline_asm_elementwise"), (DEPENDENT, "gdc_wait")]
)
def test_what_no_interpreter_has_is_told_apart_from_a_fault(build, memory, source, word):
    x, y = torch.randn(300), torch.randn(300)
    bound = build(source).bind(memory.call(x, y, outputs=[torch.zeros(300)]), memory)
    with pytest.raises(CandidateError, match="verify it on a GPU") as caught:
        bound.launch()
    assert caught.value.status is Status.UNSUPPORTED
    assert word in caught.value.detail
