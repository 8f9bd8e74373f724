"""Sanitizers: honest kernels are clean under every tool, each fault is found by the tool for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from kopt.model.kernel_file import parse_kernel
from kopt.model.values import CallSpec, NamedValue, ScalarValue
from kopt.runs.builds import BuildCache
from kopt.testing import records
from kopt.testing.arrays import Array, share
from kopt.worker.candidate import WorkerContext
from kopt.worker.segments import MappedMemory
from kopt_cpp import CppBackend, sanitizing
from kopt_cpp.sanitizing import TOOLS

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("g++") is None, reason="needs GCC on Linux"
)
LENGTH = 77
HEADER = """// /// kopt
// entry = "f"
// arguments = ["x", "y", "out", "x.numel"]
// ///
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <unistd.h>
#include <vector>
#include <omp.h>
"""
LINES_BEFORE = HEADER.count("\n")
OPEN = 'extern "C" void f(float* x, float* y, float* out, int64_t n) {\n'
ADD = "for (int64_t i = 0; i < n; ++i) out[i] = x[i] + y[i];\n"


@contextmanager
def bound(source, folder, arguments, outputs, extra=(), **options):
    """Build in this process and bind to shared memory, as a candidate process does."""
    context = WorkerContext(records.cpu(), "native", ("x",), BuildCache(folder))
    backend = CppBackend(CppBackend.Options(**options))
    executable = backend.kopt_build(None, parse_kernel(source, "cpp"), context)
    memory, shared = MappedMemory(), {}
    for name, array in [*arguments.items(), *((f"out{i}", a) for i, a in enumerate(outputs))]:
        shared[name] = share(array, "cpu")
        announcement, (descriptor,) = shared[name].segment.announcement()
        memory.attach(announcement, [os.dup(descriptor)])
    named = [NamedValue(name=name, value=shared[name].ref()) for name in arguments]
    named += [
        NamedValue(name=name, value=make(shared) if callable(make) else ScalarValue(value=make))
        for name, make in extra
    ]
    refs = [shared[f"out{i}"].ref() for i in range(len(outputs))]
    try:
        call = CallSpec(arguments=tuple(named), outputs=tuple(refs))
        yield executable, executable.bind(call, memory)
    finally:
        for array in shared.values():
            with closing(array):
                memory.detach(array.segment.id)


def report(body, folder, **options):
    """Return what the sanitizers say of a kernel f(x, y, out, n), whose results nobody looks at."""
    x, y = Array(tuple(float(i) for i in range(LENGTH))), Array((1.0,) * LENGTH)
    with bound(HEADER + body, folder, {"x": x, "y": y}, [y], **options) as (executable, call):
        return executable.sanitize(call)


HONEST = (
    "static std::vector<float>* kept;\n"
    "static thread_local std::vector<float> own;\n"
    + OPEN
    + """
    std::fputs("==1==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x1\\n", stderr);
    if (!kept) kept = new std::vector<float>(n);
    auto same = [](double a, double b) { if (a != b) std::abort(); };
    double expected = 0;
    for (int64_t i = 0; i < n; ++i) expected += x[i];
    double sum = 0, added = 0;
    float most = -1;
    int count = 0, parts[4] = {};
#pragma omp parallel for simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) sum += x[i];
    same(sum, expected);
    sum = 0;
#pragma omp parallel for reduction(+ : sum) reduction(max : most) schedule(dynamic, 7)
    for (int64_t i = 0; i < n; ++i) { sum += x[i]; most = x[i] > most ? x[i] : most; }
    same(sum, expected);
    same(most, n - 1);
#pragma omp parallel for num_threads(3) schedule(guided)
    for (int64_t i = 0; i < n; ++i) {
#pragma omp atomic
        added += x[i];
#pragma omp atomic
        ++count;
    }
    same(added, expected);
    same(count, n);
    double shared = 0;
    omp_lock_t lock;
    omp_nest_lock_t nested;
    omp_init_lock(&lock);
    omp_init_nest_lock(&nested);
#pragma omp parallel num_threads(4)
    {
        own.resize(n);
#pragma omp for schedule(static, 3) nowait
        for (int64_t i = 0; i < n; ++i) own[i] = (*kept)[i] = x[i];
#pragma omp for schedule(runtime)
        for (uint64_t i = n; i > 0; --i) out[i - 1] = y[i - 1];
#pragma omp single
        shared = 1;
#pragma omp sections
        {
#pragma omp section
            ++parts[0];
#pragma omp section
            ++parts[1];
#pragma omp section
            ++parts[2];
        }
#pragma omp critical(name)
        shared += parts[2];
        double copied;
#pragma omp barrier
#pragma omp single copyprivate(copied)
        copied = 3;
        while (!omp_test_lock(&lock)) {}
        omp_unset_lock(&lock);
        omp_set_lock(&lock);
        shared += copied;
        omp_unset_lock(&lock);
        omp_set_nest_lock(&nested);
        omp_set_nest_lock(&nested);
        ++parts[3];
        omp_unset_nest_lock(&nested);
        omp_unset_nest_lock(&nested);
#pragma omp barrier
#pragma omp parallel for num_threads(2)
        for (int64_t i = 0; i < n; ++i) own[i] += 1;
    }
    same(shared, 1 + 4 + 12);
    same(parts[3], 4);
    int grid = 0;
#pragma omp parallel for collapse(2) reduction(+ : grid) schedule(static)
    for (int i = 0; i < 10; ++i) for (int j = 0; j < 7; ++j) ++grid;
    same(grid, 70);
    std::atomic<bool> ready{false};
    std::thread other([&] { out[0] = 5; ready.store(true, std::memory_order_release); });
    while (!ready.load(std::memory_order_acquire)) {}
    same(out[0], 5);
    other.join();
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] + y[i];
}
"""
)


def test_an_honest_kernel_is_clean_whatever_it_prints(tmp_path):
    """It aborts, and the tool is skipped, where OpenMP's constructs do not do what they should."""
    found = report(HONEST, tmp_path)
    assert found.skipped == {}
    assert found.ran == TOOLS
    assert found.findings == ()
    assert found.seconds > 0


FAULTS = {
    "after a tensor": (
        OPEN + ADD
        + "volatile int bits = 40; out[0] = 1 << bits;\n"
        "out[1] = reinterpret_cast<volatile float*>(y)[n];\n"
        "float sum = 0;\n"
        "#pragma omp parallel for\n"
        "for (int64_t i = 0; i < n; ++i) sum += x[i];\n"
        "out[2] = sum;\n}\n",
        [("address", "heap-buffer-overflow", 4, "0 bytes after the tensor y of 308 bytes"),
         ("undefined", "shift-exponent", 3, "shift exponent 40"),
         ("thread", "data race", None, "write of size 4")],
    ),
    "kept from the call before": (
        "static float* kept;\n" + OPEN + ADD
        + "volatile int most = 0x7fffffff; out[0] = most + (n > 0);\n"
        "if (kept) out[0] = *static_cast<volatile float*>(kept);\n"
        "else { kept = static_cast<float*>(malloc(64)); free(kept); }\n"
        "#pragma omp parallel num_threads(2)\n"
        "if (omp_get_thread_num()) {\n"
        "#pragma omp critical(a)\n"
        "out[1] += 1;\n"
        "} else {\n"
        "#pragma omp critical(b)\n"
        "out[1] += 1;\n"
        "}\n}\n",
        [("address", "heap-use-after-free", 5, "0 bytes inside what line"),
         ("undefined", "signed-integer-overflow", 4, "cannot be represented"),
         ("thread", "data race", None, "size 4")],
    ),
    "before a tensor, and a missing barrier": (
        "static float scale;\n" + OPEN
        + "#pragma omp parallel num_threads(4)\n"
        "{\n"
        "#pragma omp single nowait\n"
        "scale = x[1];\n"
        "#pragma omp for schedule(dynamic)\n"
        "for (int64_t i = 0; i < n; ++i) out[i] = x[i] * scale;\n"
        "}\n"
        "out[0] = reinterpret_cast<volatile float*>(x)[-1];\n}\n",
        [("address", "heap-buffer-overflow", 10, "4 bytes before the tensor x"),
         ("thread", "data race", None, "size 4 in line")],
    ),
    "a local array": (
        OPEN + ADD
        + "float some[8] = {}; volatile int at = 8;\n"
        "some[at] = x[0]; out[0] = some[at - 1];\n"
        "std::thread other([=] { out[1] = 1; });\n"
        "out[1] = 2; other.join();\n}\n",
        [("address", "stack-buffer-overflow", 4, "variable some"),
         ("undefined", "bounds", 4, "index 8 out of bounds"),
         ("thread", "data race", None, "size 4")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_found_by_the_tool_for_it(tmp_path, name):
    body, expected = FAULTS[name]
    found = report(body, tmp_path)
    for tool, kind, line, text in expected:
        mine = [each for each in found.findings if each.tool == tool and each.kind == kind]
        assert mine, found
        assert text in mine[0].message
        assert line is None or mine[0].line == LINES_BEFORE + line
    assert {each.tool for each in found.findings} == {tool for tool, *_ in expected}


def test_what_a_tool_cannot_do_is_said(tmp_path):
    compiler = tmp_path / "g++"
    compiler.write_text(
        '#!/bin/sh\ncase "$*" in *-fsanitize=undefined*) echo no runtime >&2; exit 1;; esac\n'
        f'exec {shutil.which("g++")} "$@"\n'
    )
    compiler.chmod(0o755)
    body = (
        OPEN + ADD + "#pragma omp parallel\n#pragma omp single\n#pragma omp task\nout[0] = 1;\n}\n"
    )
    found = report(body, tmp_path, compiler=str(compiler))
    assert (found.ran, found.findings) == (("address",), ())
    assert "GOMP_task" in found.skipped["thread"]
    assert "links no undefined sanitizer here; install libubsan" in found.skipped["undefined"]


def test_an_early_end_and_a_fence_prove_nothing(tmp_path):
    fence = "std::atomic_thread_fence(std::memory_order_seq_cst);\n"
    found = report(OPEN + ADD + fence + "_exit(0);\n}\n", tmp_path)
    assert (found.ran, found.findings) == ((), ())
    assert "does not see what atomic_thread_fence orders" in found.skipped["thread"]
    for tool in ("address", "undefined"):
        assert "ended with code 0 before the kernel returned" in found.skipped[tool]


def test_a_source_that_switches_them_off_is_not_clean(tmp_path):
    past = "out[0] = reinterpret_cast<volatile float*>(y)[n];\n"
    found = report("__attribute__((no_sanitize_address)) " + OPEN.replace('extern "C" void f', "void g")
                   + past + "}\n" + OPEN + ADD + "g(x, y, out, n);\n}\n", tmp_path)  # fmt: skip
    assert (found.ran, found.findings) == ((), ())
    assert all("no_sanitize" in reason for reason in found.skipped.values())


def test_a_large_call_is_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr(sanitizing, "MOST_BYTES", 3 * 4 * LENGTH - 1)
    found = report(OPEN + ADD + "}\n", tmp_path)
    assert set(found.skipped) == set(TOOLS)
    assert "small workload" in found.skipped["address"]


def test_one_that_hangs_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(sanitizing, "SANITIZER_SECONDS", sanitizing._MARGIN + 4)
    found = report(OPEN + "for (volatile bool on = true; on;) {}\n}\n", tmp_path)
    assert found.ran == ()
    assert all("within" in reason for reason in found.skipped.values())


PASSED = """// /// kopt
// entry = "number"
// arguments = ["x", "tail", "empty", "out", "whole", "-whole", "real", "infinite", "flag"]
// ///
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
extern "C" int number(float *x, const float *tail, int8_t *empty, float *out, int64_t whole,
                      int64_t minus, double real, double infinite, int64_t flag) {
    for (bool right : {tail - x == 3, empty != nullptr, whole == -5, minus == 5, real == 0.1,
                       infinite > 1e308, flag == 1, x[0] == 1, tail[0] == 4,
                       reinterpret_cast<uintptr_t>(x) % 64 == 0})
        if (!right) std::abort();
    x[0] = 7;  // the second call gets the same content again
    out[0] = tail[1];
    return 1;
}
"""


def test_a_call_is_passed_as_it_is(tmp_path):
    x = Array((1.0, 2.0, 3.0, 4.0, 5.0))

    def tail(shared):
        ref = shared["x"].ref()
        return ref.model_copy(update={"offset": ref.offset + 12, "shape": (2,)})

    extra = [("tail", tail), ("whole", -5), ("real", 0.1), ("infinite", float("inf"))]
    arguments = {"x": x, "empty": Array((), "int8")}
    with bound(PASSED, tmp_path, arguments, [x], [*extra, ("flag", True)]) as (executable, call):
        found = executable.sanitize(call)
    assert (found.skipped, found.ran, found.findings) == ({}, TOOLS, ())


def test_a_program_gets_more_addresses_than_a_candidate_memory(tmp_path):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nulimit -d\n")
    program.chmod(0o755)
    launcher = Path(sanitizing.__file__).parent / "native" / "launch.py"
    command = f"ulimit -Sd 4000000; exec {sys.executable} -I -S {launcher} {program}"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "unlimited"
