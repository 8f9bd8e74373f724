"""The assembly of a C++ kernel, and the sizes of what was built."""

from __future__ import annotations

import shutil

import pytest

from kopt.errors import CandidateError
from kopt.model.kernel_file import parse_kernel
from kopt.model.values import CallSpec
from kopt.runs.builds import BuildCache
from kopt.testing import records
from kopt.worker.candidate import WorkerContext
from kopt_cpp import CppBackend
from kopt_cpp.compiler import NAMES, find_compiler
from kopt_cpp.listing import assembly, sizes

ADD = """#include <cstdint>
extern "C" void vector_add(const float* x, const float* y, float* out) {
    for (int64_t i = 0; i < COUNT; ++i) out[i] = x[i] + y[i];
}
"""
HEADER = "// /// kopt\n// {flags}\n// [knobs]\n// COUNT = [64, 4096]\n// ///\n"


@pytest.fixture
def build(tmp_path):
    def make(source: str = ADD, flags: str = "", knobs=None, **options):
        context = WorkerContext(records.cpu(), "native", ("x",), BuildCache(tmp_path))
        candidate = parse_kernel(HEADER.format(flags=flags) + source, "cpp")
        candidate = candidate.with_values("test", **(knobs or {}))
        return CppBackend(CppBackend.Options(**options)).kopt_build(None, candidate, context)

    return make


def listing(executable) -> str:
    return executable.listing("asm", CallSpec(arguments=(), outputs=()))["kernel.cpp"]


@pytest.mark.parametrize("name", [name for name in NAMES if shutil.which(name)])
def test_every_compiler_here_writes_assembly(build, name):
    executable = build(compiler=name)
    assert executable.listing_kinds == ("asm",)
    assert "vector_add:" in listing(executable)


def test_flags_and_knobs_decide_it_as_they_decide_the_binary(build):
    plain = listing(build())
    assert listing(build(knobs={"COUNT": 4096})) != plain
    assert listing(build(flags='flags = ["-O0"]')) != plain


def test_link_time_optimisation_is_left_out(build):
    text = listing(build(flags='flags = ["-flto"]'))
    assert "vector_add:" in text
    assert "gnu.lto" not in text


def test_a_source_that_does_not_compile_raises_with_the_line():
    compiler = find_compiler()
    assert compiler is not None
    with pytest.raises(CandidateError, match=r"kernel\.cpp:2:"):
        assembly(compiler, "\nint broken(", [])


def test_code_and_data_are_counted_apart(build):
    plain = build().build.resources
    assert 0 < plain["text_bytes"] < plain["library_bytes"]
    table = "static float table[1000];\n" + ADD.replace("y[i];", "y[i] + (table[i] += 1);")
    with_table = build(table).build.resources
    assert with_table["data_bytes"] - plain["data_bytes"] >= 4000
    larger = build(ADD + ADD.replace("vector_add", "another")).build.resources
    assert larger["text_bytes"] > plain["text_bytes"]


def test_another_form_of_file_has_its_size_only():
    assert sizes(b"\xcf\xfa\xed\xfe" + bytes(100)) == {"library_bytes": 104}
