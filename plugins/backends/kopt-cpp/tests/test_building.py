"""Compiling: readable errors, reuse, identity, and how long it takes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kopt.errors import CandidateError
from kopt.model.kernel_file import parse_kernel
from kopt.model.verification import Status
from kopt.runs.builds import BuildCache
from kopt.testing import records
from kopt.testing.arrays import Array
from kopt.testing.bench import CandidateBench
from kopt.testing.problems import vector_add
from kopt.worker.candidate import WorkerContext
from kopt_cpp import CppBackend
from kopt_cpp.compiler import NAMES, find_compiler

ADD = """#include <cstdint>
extern "C" void vector_add(const float* x, const float* y, float* out) {
#pragma omp parallel for simd
    for (int64_t i = 0; i < 64; ++i) out[i] = x[i] + y[i];
}
"""
HEADER = '// /// kopt\n// entry = "vector_add"\n// [knobs]\n// BLOCK = [8, 16]\n// ///\n'


def build(source: str, folder: Path, **options):
    context = WorkerContext(records.cpu(), "native", ("x",), BuildCache(folder))
    backend = CppBackend(CppBackend.Options(**options))
    candidate = parse_kernel(source, "cpp") if isinstance(source, str) else source
    return backend.kopt_build(None, candidate, context)


def compilers():
    return [name for name in NAMES if shutil.which(name)]


@pytest.mark.parametrize("name", compilers())
def test_every_compiler_here_builds_it(tmp_path, record_property, name):
    executable = build(ADD, tmp_path, compiler=name)
    record_property(f"{name}_seconds", executable.build.seconds)
    assert executable.build.seconds > 0
    assert executable.build.resources["library_bytes"] > 1000
    assert len(executable.build.binary_id) == 16


def test_an_error_reads_as_the_compiler_wrote_it(tmp_path):
    with pytest.raises(CandidateError) as caught:
        build(ADD.replace("x[i] + y[i]", "x[i] + z[i]"), tmp_path, compiler="g++")
    assert caught.value.status is Status.COMPILE_ERROR
    detail = caught.value.detail
    assert "kernel.cpp:4:" in detail
    assert "'z' was not declared" in detail.replace("\u2018", "'").replace("\u2019", "'")
    assert str(tmp_path) not in detail


def test_a_flood_of_errors_is_cut(tmp_path):
    with pytest.raises(CandidateError) as caught:
        build("\n".join(f"unknown_{i} variable_{i};" for i in range(2000)) + ADD, tmp_path)
    assert len(caught.value.detail) < 5000
    assert caught.value.detail.endswith("[cut]")


def test_a_missing_compiler_is_unsupported_and_red(tmp_path):
    with pytest.raises(CandidateError, match="install a C") as caught:
        build(ADD, tmp_path, compiler="no-such-compiler")
    assert caught.value.status is Status.UNSUPPORTED
    (row,) = CppBackend(CppBackend.Options(compiler="no-such-compiler")).kopt_check()
    assert (row.state, row.detail) == ("fail", "no no-such-compiler")
    assert "apt install" in row.fix


def test_the_compiler_here_has_a_version_and_openmp():
    compiler = find_compiler()
    assert compiler is not None
    (row,) = CppBackend(CppBackend.Options()).kopt_check()
    assert row.detail.startswith(compiler.version)
    assert row.state == ("ok" if compiler.openmp else "warn")


def test_warnings_are_kept_with_the_build_and_found_again(tmp_path):
    source = ADD.replace("#pragma", "    int unused;\n#pragma")
    for cached in (False, True):
        made = build(source, tmp_path, flags=("-Wall",)).build
        assert made.cached is cached
        assert "unused variable" in made.log


def test_what_decides_the_code_decides_the_build(tmp_path):
    source = HEADER + ADD
    first = build(source, tmp_path).build
    candidate = parse_kernel(source, "cpp").with_values("test", BLOCK=16)
    others = [
        build(candidate, tmp_path).build,
        build(source.replace("x[i] + y[i]", "y[i] - x[i]"), tmp_path).build,
        build(source, tmp_path, flags=("-O1",)).build,
    ]
    assert [made.cached for made in [first, *others]] == [False] * 4
    assert build(source, tmp_path).build.cached is True


def test_the_binary_does_not_depend_on_the_folder(tmp_path):
    source = ADD.replace("y[i]", "y[i] * (__FILE__[0] != 0)")
    ids = {build(source, tmp_path / folder).build.binary_id for folder in ("a", "b")}
    assert len(ids) == 1


def test_a_library_that_cannot_be_loaded_is_the_candidates_fault(tmp_path):
    source = ADD.replace("#include", "extern int nowhere();\n#include")
    source = source.replace("+ y[i]", "+ y[i] * nowhere()")
    with pytest.raises(CandidateError, match="nowhere") as caught:
        build(source, tmp_path)
    assert caught.value.status is Status.LAUNCH_FAILED


def test_a_file_without_a_header_gets_inputs_and_outputs(tmp_path):
    plugins = [("backend", "kopt-cpp:cpp", {})]
    x, y = Array(tuple(range(64))), Array(tuple(range(1, 65)))
    with CandidateBench(plugins, vector_add(64), records.cpu(), tmp_path) as bench:
        outcome = bench.run(parse_kernel(ADD, "cpp"), {"x": x, "y": y}, [Array.full(x, 0.0)])
    assert outcome.outputs == (tuple(float(2 * i + 1) for i in range(64)),)


def test_each_call_of_a_build_has_its_own_arguments(tmp_path):
    plugins = [("backend", "kopt-cpp:cpp", {})]
    with CandidateBench(plugins, vector_add(64), records.cpu(), tmp_path) as bench:
        for shift in (1.0, 5.0, 1.0):
            x, y = Array((shift,) * 64), Array((2.0,) * 64)
            outcome = bench.run(parse_kernel(ADD, "cpp"), {"x": x, "y": y}, [Array.full(x, 0.0)])
            assert outcome.outputs == ((shift + 2.0,) * 64,)
