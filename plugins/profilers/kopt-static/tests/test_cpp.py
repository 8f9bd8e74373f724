"""C++ for the CPU: vector and scalar arithmetic in real assembly."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from kopt_static.assembly import functions

RECORDED = Path(__file__).parent / "recorded"
HEADER = '// /// kopt\n// entry = "kernel"\n// flags = {flags}\n// ///\n#include <cstdint>\n'
SCALE = """
extern "C" void kernel(const float* x, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = 2 * x[i] + 1;
}
"""
PARALLEL = SCALE.replace("    for", "    #pragma omp parallel for\n    for")
CHAIN = """
static float step(float total, float x) { return total * x + 1.5f; }
extern "C" void kernel(const float* x, float* out, int64_t n) {
    float total = 0;
    for (int64_t i = 0; i < n; ++i) total = step(total, x[i]);
    out[0] = total;
}
"""
WHOLE = SCALE.replace("float", "int32_t")
NATIVE = '["-O3", "-march=native"]'
x86_64 = pytest.mark.skipif(
    platform.machine() not in {"x86_64", "AMD64"}, reason="its flags are those of x86-64"
)


@pytest.fixture
def cpp(build):
    """Return a function that gives the metrics of a source's functions."""

    def make(source, flags=NATIVE, dtype="float32"):
        text = HEADER.format(flags=flags) + source
        built = build(text, "cpp", (1 << 16,), dtype, architecture="native")
        return built.kernels(gpu=False)

    return make


def test_a_loop_for_this_machine_is_vectorised(cpp):
    found = cpp(SCALE)["kernel"]
    assert found["static_vector_instructions"] > 0
    assert found["static_vector_bits"] >= 128
    assert found["static_branches"] > 0


@x86_64
@pytest.mark.parametrize(
    ("flags", "bits"),
    [
        ('["-O3", "-march=x86-64"]', 128),
        ('["-O3", "-march=x86-64-v3"]', 256),
        ('["-O3", "-march=x86-64-v4", "-mprefer-vector-width=512"]', 512),
        ('["-O3", "-march=x86-64-v4", "-mprefer-vector-width=512", "-masm=intel"]', 512),
    ],
)
def test_the_widest_register(cpp, flags, bits):
    found = cpp(SCALE, flags)["kernel"]
    assert found["static_vector_bits"] == bits
    assert found["static_vector_instructions"] > 0


@x86_64
def test_integers_are_vectors_too(cpp):
    found = cpp(WHOLE, '["-O3", "-march=x86-64-v3"]', "int32")["kernel"]
    assert found["static_vector_instructions"] > 0
    assert found["static_scalar_float_instructions"] == 0


def test_a_dependent_chain_is_scalar(cpp):
    found = cpp(CHAIN)["kernel"]
    assert found["static_scalar_float_instructions"] > 0
    assert found["static_vector_instructions"] == 0


def test_a_parallel_loop_counts_for_its_function(cpp):
    serial, found = cpp(SCALE), cpp("int before() { return 1; }\n" + PARALLEL)
    assert list(found) == ["kernel", "_Z6beforev"]
    assert found["kernel"]["static_vector_instructions"] > 0
    assert found["kernel"]["static_vector_bits"] == serial["kernel"]["static_vector_bits"]


def test_without_a_listing_there_is_a_note(build):
    text = HEADER.format(flags=NATIVE) + SCALE
    built = build(text, "cpp", (16,), architecture="native", missing=["asm"])
    profile = built.profile(gpu=False)
    assert profile.kernels == ()
    assert profile.notes == ("no asm listing: no tool for asm",)


def test_arm64():
    found = functions((RECORDED / "arm64.s").read_text(encoding="utf-8"))
    assert set(found) == {"scale", "chain", "count", "move"}
    scale, chain, count = (found[name].metrics for name in ("scale", "chain", "count"))
    assert scale["static_vector_bits"] == 128
    assert scale["static_vector_instructions"] == 1
    assert (chain["static_vector_instructions"], chain["static_vector_bits"]) == (0, 0)
    assert chain["static_scalar_float_instructions"] >= 1
    assert count["static_scalar_float_instructions"] == 0
    assert all(code["static_branches"] >= 1 for code in (scale, chain, count))
    assert found["move"].metrics["static_vector_bits"] == 128
    assert found["move"].metrics["static_vector_instructions"] == 0


def test_scalable_vectors_have_no_width():
    found = functions((RECORDED / "arm64_sve.s").read_text(encoding="utf-8"))
    assert found["scale"].metrics["static_vector_instructions"] >= 1
    assert "static_vector_bits" not in found["scale"].metrics
    assert found["count"].metrics["static_vector_bits"] == 0


def test_another_machine_is_not_read():
    assert functions("\t.type f, @function\nf:\n\tfadd.s\tfa0,fa0,fa1\n\tret\n") == {}
