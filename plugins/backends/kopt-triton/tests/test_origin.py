"""The interpreter's own internals do not look like delegation; PyTorch in the launcher does."""

from __future__ import annotations

import pytest
import torch

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
DELEGATED = ADD.replace("return out", "return torch.exp(x) + y")


@pytest.mark.parametrize(("source", "expected"), [(ADD, set()), (DELEGATED, {"exp", "add"})])
def test_what_an_interpreted_kernel_uses(build, memory, source, expected):
    x, y = torch.randn(300), torch.randn(300)
    executable = build(source)
    bound = executable.bind(memory.call(x, y, outputs=[torch.zeros(300)]), memory)
    used = executable.origin(bound).operators
    assert {use.name.rpartition("::")[2] for use in used if not use.moves_only} == expected
    assert any(use.moves_only for use in used)
