"""What Triton itself refuses, ahead of time for sm_90: status, line of the file, likely fix."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
import torch

from kopt.errors import CandidateError
from kopt.model.values import CallSpec, NamedValue, TensorRef
from kopt.model.verification import Status
from kopt_triton.likely_fixes import fix_of

pytest.importorskip("triton")

LINE, LAUNCH = 14, 19
"""Of the changed line, and of the launch."""
SOURCE = """\
SCALE = 3

def helper(v):
    return v


@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    {line}
    tl.store(out + at, v, mask=at < n)

def kernel_function(x):
    out = torch.empty_like(x)
    kernel[(1,)]({launch})
    return out
"""
DOT = """\
@triton.jit
def kernel(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n[None, :])
    acc = {dot}
    tl.store(c + m[:, None] * N + n[None, :], acc)

def kernel_function(a, b):
    c = torch.empty((64, 64), device=a.device, dtype=torch.float32)
    kernel[(1,)](a, b, c, {sizes})
    return c
"""
LOAD = "v = tl.load(x + at, mask=at < n)"


def failure(build, source: str, *tensors) -> CandidateError:
    with pytest.raises(CandidateError) as caught:
        build(source, architecture="sm_90").ahead_of_time(*tensors)
    return caught.value


def elementwise(build, shapes_only, line: str = LOAD, launch: str = "x, out, 1024, BLOCK=1024"):
    call = shapes_only(*[((1024,), torch.float32)] * 2)
    return failure(build, SOURCE.format(line=line, launch=launch), call)


def dot(build, shapes_only, dot="tl.dot(x, y)", sizes="64, 64, 64", b=torch.float16):
    call = shapes_only(((64, 64), torch.float16), ((64, 64), b), ((64, 64), torch.float32))
    return failure(build, DOT.format(dot=dot, sizes=sizes), call)


def helps(error: CandidateError, line: int, fix: str) -> None:
    """Check that the detail names the line, what was said, and the fix after it."""
    assert re.match(rf"line {line}: `.+`: .+; [^;]*{re.escape(fix)}", error.detail, re.S)


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("v = tl.arange(0, 1000)", "triton.next_power_of_2(n)"),
        ("v = tl.zeros((1000,), tl.float32)", "triton.next_power_of_2(n)"),
        ("v = tl.arange(0, n)", "`NAME: tl.constexpr`"),
        ("v = tl.zeros((n,), tl.float32)", "`NAME: tl.constexpr`"),
        ("v = tl.arange(0, 0)", "at least 1"),
        ("v = tl.zeros((1 << 21,), tl.float32)", "a smaller block"),
        ("v = missing", "define the name"),
        ("v = tl.nothing(at)", "check the name"),
        ("v = at * SCALE", "tl.constexpr(value)"),
        ("v = tl.load(x + at, other=0.0)", "give the load a mask"),
        ("v = tl.load(x + at, mask=tl.arange(0, 512) < n)", "shapes agree"),
        ("v = tl.load(x + at, mask=at < n, other=tl.zeros((512,), tl.float32))", "shapes agree"),
        ("v = tl.load(x, mask=at < n)", "ptr + tl.arange"),
        ("v = tl.load(at)", "a tensor's pointer"),
        ("v = tl.load(x + at * 1.5)", "offsets of a pointer are integers"),
        ("v = at + tl.arange(0, 512)", "shapes agree"),
        ("v = at[0]", "indexed by None and :"),
        ("v = tl.exp(at)", "cast to one of these dtypes"),
        ("v = tl.load(x + at) & 1", "cast the operands"),
        ("v = at.to('half')", "tl.float16, not as text"),
        ("v = tl.sum(at, dim=0)", "check the name"),
        ("v = tl.reshape(at, (32, 16))", "product of the new extents"),
        ("v = tl.trans(at)", "second dimension"),
        ("v = len(at)", "take the extent"),
        ("f = lambda v: v", "a part of Python only"),
    ],
)
def test_a_line_that_does_not_compile(build, shapes_only, line, fix):
    error = elementwise(build, shapes_only, line)
    assert error.status is Status.COMPILE_ERROR
    helps(error, LINE, fix)


@pytest.mark.parametrize(
    ("lines", "at", "fix"),
    [
        (["v = 0", "for i in range(0, n):", "    v = v + at"], 1, "before the loop"),
        (["if n > 3:", "    v = at", "else:", "    v = 1"], 0, "before the loop or branch"),
        (["v = at", "if v > 0:", "    v = v * 2"], 1, "tl.where"),
        (["v = at", "for i in range(0, n):", "    break"], 2, "a part of Python only"),
        (["v = at", "for i in range(n):", "    if i > 3:", "        return"], 2, "at the end"),
        (["v = at", "print(f'{v}')"], 1, "tl.device_print"),
        (["def inner(v):", "    return v", "v = inner(at)"], 0, "at module level"),
        (["v = at", "tl.store(out, v)"], 1, "ptr + tl.arange"),
        (["v = at[:, None] + at"], 1, "pointer, value and mask need one shape"),
        (["v = helper(at)"], 0, "functions with @triton.jit only"),
        (["v = torch.relu(at)"], 0, "functions with @triton.jit only"),
    ],
)
def test_several_lines_that_do_not_compile(build, shapes_only, lines, at, fix):
    error = elementwise(build, shapes_only, "\n    ".join(lines))
    assert error.status is Status.COMPILE_ERROR
    helps(error, LINE + at, fix)


@pytest.mark.parametrize(
    ("launch", "status", "fix"),
    [
        ("x, out, 1024, BLOCK=1024, num_warps=3", "compile-error", "use 1, 2, 4, 8, 16 or 32"),
        ("x, out, 1024, BLOCK=1024, num_ctas=3", "compile-error", "the compiler itself failed"),
        ("x, out, 1024, BLOCK=1024, WARPS=3", "compile-error", "no such parameter"),
        ("x, out, BLOCK=1024", "launch-failed", "every parameter of the kernel once"),
        ("x, out, 1024, 1, BLOCK=1024", "launch-failed", "every parameter of the kernel once"),
        ("x, 'out', 1024, BLOCK=1024", "launch-failed", "tensors, numbers, bools"),
    ],
)
def test_a_launch_that_does_not_fit_its_kernel(build, shapes_only, launch, status, fix):
    error = elementwise(build, shapes_only, LOAD, launch)
    assert error.status.value == status
    helps(error, LAUNCH, fix)


def test_an_argument_that_is_none(build, shapes_only):
    error = elementwise(build, shapes_only, LOAD, "x, None, 1024, BLOCK=1024")
    helps(error, LINE + 1, "if NAME is not None")


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        ({"b": torch.float32}, "cast both operands to one dtype"),
        ({"sizes": "64, 64, 8"}, "extents of at least 16"),
        ({"dot": "tl.dot(x.to(tl.int32), y.to(tl.int32))"}, "tl.dot takes"),
        ({"dot": "tl.dot(x, tl.zeros((32, 64), tl.float16))"}, "(M, K) by (K, N)"),
        ({"dot": "tl.dot(x, tl.zeros((64,), tl.float16))"}, "two dimensions"),
        ({"dot": "tl.dot(x, y, tl.zeros((32, 64), tl.float32))"}, "the shape (M, N)"),
        ({"dot": "tl.dot(x, y, tl.zeros((64, 64), tl.int32))"}, "refuses"),
    ],
)
def test_a_dot_that_does_not_compile(build, shapes_only, arguments, fix):
    error = dot(build, shapes_only, **arguments)
    assert error.status is Status.COMPILE_ERROR
    helps(error, 10, fix)


def test_too_much_shared_memory_names_the_launch_and_the_figures(build, shapes_only):
    error = dot(build, shapes_only, sizes="64, 64, 2048")
    assert error.status is Status.COMPILE_ERROR
    helps(error, 15, "smaller blocks or fewer num_stages")
    assert "needs 524288 bytes of shared memory, the GPU gives a block 232448" in error.detail


def test_a_mask_that_is_a_number_is_refused(build, shapes_only, capfd):
    """Triton verifies types late, and prints where on its own standard error."""
    error = elementwise(build, shapes_only, "v = tl.load(x + at, mask=at)")
    assert error.status is Status.COMPILE_ERROR
    helps(error, LAUNCH, "a mask is a comparison, not a number")
    assert "0x" not in error.detail


def test_wrong_inline_assembly_says_which_instruction_in_one_line(build, shapes_only):
    line = (
        'v = tl.inline_asm_elementwise("bogus $0, $1;", "=r,r", [at], dtype=tl.int32, '
        "is_pure=True, pack=1)"
    )
    error = elementwise(build, shapes_only, line)
    assert error.status is Status.COMPILE_ERROR
    helps(error, LAUNCH, "correct the inline assembly")
    assert error.detail.count("'bogus'") == 1
    assert "\n" not in error.detail


def test_a_message_is_judged_without_the_users_line(build, shapes_only):
    """A source that speaks of memory or ptxas has not run out of the one or upset the other."""
    launch = "x, out, BLOCK=1024)  # out of memory, misaligned address, ptxas ("
    error = elementwise(build, shapes_only, LOAD, launch)
    assert error.status is Status.LAUNCH_FAILED
    assert "every parameter of the kernel once" in error.detail


def test_what_is_not_known_gets_no_fix():
    assert fix_of("something new") == ""


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("launch", "status", "fix"),
    [
        ("x, out, 1024, BLOCK=1024, num_warps=64", "compile-error", "fewer num_warps"),
        ("x.cpu(), out, 1024, BLOCK=1024", "launch-failed", "device=x.device"),
    ],
)
def test_what_only_a_gpu_refuses(build, launch, status, fix):
    executable = build(SOURCE.format(line=LOAD, launch=launch), kind="cuda")
    x = torch.ones(1024, device="cuda")
    ref = TensorRef(segment=0, offset=0, dtype="float32", shape=(1024,), strides=(1,))
    call = CallSpec(arguments=(NamedValue(name="x", value=ref),), outputs=(ref,))
    with pytest.raises(CandidateError) as caught:
        executable.callable_for(call, SimpleNamespace(open=lambda ref: x))()
    assert caught.value.status.value == status
    helps(caught.value, LAUNCH, fix)
