"""A kernel that leaves its tensors is caught: it dies of it, or the bytes around them tell."""

from __future__ import annotations

import sys

import pytest

from kopt.errors import CandidateError
from kopt.model.kernel_file import parse_kernel
from kopt.model.verification import Status
from kopt.testing import records
from kopt.testing.arrays import Array
from kopt.testing.bench import CandidateBench
from kopt.testing.problems import vector_add

LENGTH = 77
"""308 bytes: 12 bytes of padding before the guard page."""
needs_pages = pytest.mark.skipif(sys.platform != "linux", reason="guard pages are tested on Linux")


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    plugins = [("backend", "kopt-cpp:cpp", {})]
    cache = tmp_path_factory.mktemp("builds")
    with CandidateBench(plugins, vector_add(LENGTH), records.cpu(), cache) as made:
        yield made


def run(bench, statement: str, length: int = LENGTH):
    """Run a kernel that adds, and then does something else."""
    source = (
        "#include <cstdint>\n"
        'extern "C" void vector_add(float* x, const float* y, float* out) {\n'
        f"    for (int64_t i = 0; i < {length}; ++i) out[i] = x[i] + y[i];\n"
        f"    {statement}\n}}\n"
    )
    x, y = Array((1.0,) * length), Array((2.0,) * length)
    return bench.run(parse_kernel(source, "cpp"), {"x": x, "y": y}, [Array.full(x, 0.0)])


@needs_pages
@pytest.mark.parametrize(
    "statement",
    [
        f"out[0] = reinterpret_cast<volatile const float*>(y)[{LENGTH} + 16];",
        f"out[0] = reinterpret_cast<volatile const float*>(y)[{LENGTH} + 3];",
        f"reinterpret_cast<volatile float*>(out)[{LENGTH} + 16] = 1;",
        "out[0] = reinterpret_cast<volatile const float*>(y)[-1500];",
        "reinterpret_cast<volatile float*>(out)[-1500] = 1;",
    ],
    ids=["reads 64 bytes after", "reads the guard page's first", "writes 64 bytes after",
         "reads far before", "writes far before"],
)  # fmt: skip
def test_it_dies_where_it_leaves_its_pages(bench, statement):
    with pytest.raises(CandidateError, match=r"SIGSEGV|SIGBUS") as caught:
        run(bench, statement)
    assert caught.value.status is Status.ILLEGAL_ACCESS


@needs_pages
def test_without_padding_the_next_element_is_too_far(bench):
    with pytest.raises(CandidateError) as caught:
        run(bench, "out[0] = reinterpret_cast<volatile const float*>(y)[64];", length=64)
    assert caught.value.status is Status.ILLEGAL_ACCESS


@pytest.mark.parametrize(
    ("statement", "hurt"),
    [
        (f"reinterpret_cast<volatile float*>(out)[{LENGTH}] = 1;", ("out0",)),
        (f"reinterpret_cast<volatile float*>(x)[{LENGTH} + 2] = 1;", ("x",)),
        ("reinterpret_cast<volatile float*>(out)[-1] = 1;", ("out0",)),
        ("reinterpret_cast<volatile float*>(out)[-200] = 1;", ("out0",)),
    ],
    ids=["one after", "last of the padding", "one before", "far before"],
)
def test_a_write_into_the_padding_is_seen(bench, statement, hurt):
    outcome = run(bench, statement)
    assert outcome.canaries_hurt == hurt
    assert outcome.outputs == ((3.0,) * LENGTH,)


def test_an_honest_kernel_hurts_nothing(bench):
    for length in (1, 15, 16, 1024, 1025):
        outcome = run(bench, "", length=length)
        assert outcome.canaries_hurt == ()
        assert outcome.outputs == ((3.0,) * length,)


def test_empty_tensors_can_be_passed(bench):
    outcome = run(bench, "", length=0)
    assert outcome.outputs == ((),)
    assert outcome.canaries_hurt == ()


@needs_pages
def test_a_kernel_that_makes_the_pages_accessible_is_seen(bench):
    source = """#include <cstdint>
#include <sys/mman.h>
#include <unistd.h>
extern "C" void vector_add(const float* x, const float* y, float* out) {
    const uintptr_t page = sysconf(_SC_PAGESIZE);
    const uintptr_t last = reinterpret_cast<uintptr_t>(out) / page * page + page;
    mprotect(reinterpret_cast<void*>(last), page, PROT_READ | PROT_WRITE);
    for (int64_t i = 0; i < 77; ++i) out[i] = x[i] + y[i];
    reinterpret_cast<volatile char*>(last)[page - 1] = 1;
}
"""
    x, y = Array((1.0,) * LENGTH), Array((2.0,) * LENGTH)
    outcome = bench.run(parse_kernel(source, "cpp"), {"x": x, "y": y}, [Array.full(x, 0.0)])
    assert outcome.canaries_hurt == ("out0",)
