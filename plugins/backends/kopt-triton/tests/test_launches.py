"""How a Triton module launches: its kernels' bodies and its comments have no part in it."""

from __future__ import annotations

from kopt.model.kernel_file import parse_kernel
from kopt_triton.launches import launch_id

SOURCE = """\
# /// kopt
# entry = "scale"
# language = "triton"
# [knobs]
# BLOCK = [128, 256]
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def _scale(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def scale(x, BLOCK):
    out = torch.empty_like(x)
    _scale[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), BLOCK=BLOCK)
    return out
"""


def of(source, **knobs):
    return launch_id(parse_kernel(source, "triton").with_values("test", **knobs))


def test_comments_and_what_becomes_binaries_are_left_out():
    commented = SOURCE.replace("import torch\n", "import torch  # tensors\n\n")
    renamed = SOURCE.replace("tl.program_id(0) * BLOCK", "BLOCK * tl.program_id(0)")
    assert of(SOURCE) == of(commented) == of(renamed) != ""


def test_the_launcher_decorators_and_knobs_count():
    tuned = SOURCE.replace("@triton.jit", "@triton.autotune([], key=[])\n@triton.jit")
    grid = SOURCE.replace("triton.cdiv(x.numel(), BLOCK)", "2 * triton.cdiv(x.numel(), BLOCK)")
    found = [of(SOURCE), of(tuned), of(grid), of(SOURCE, BLOCK=256)]
    assert len(set(found)) == 4


def test_a_source_that_does_not_parse_has_none():
    candidate = parse_kernel(SOURCE, "triton").model_copy(update={"source": "def f(:", "knobs": {}})
    assert launch_id(candidate) == ""
