from __future__ import annotations

import pytest

from kopt.errors import KernelFileError
from kopt.model.kernel_file import is_python, parse_kernel, settled_source, suffix_of

BODY = 'extern "C" void f(const float* x, float* out) { out[0] = x[0]; }\n'


def header(*lines: str) -> str:
    return "\n".join(["// /// kopt", *(f"// {line}" for line in lines), "// ///", BODY])


def test_a_header_is_read() -> None:
    found = parse_kernel(
        header('entry = "f"', 'flags = ["-O2"]', "[knobs]", "N = [2, 4]"), "cpp", idea="i"
    )
    assert (found.entry, found.settings, found.chosen) == ("f", {"flags": ["-O2"]}, {"N": 2})


def test_without_a_header_the_entry_is_found() -> None:
    assert parse_kernel(BODY, "cpp").entry == "f"


@pytest.mark.parametrize("value", ["2026-01-01", "nan", "inf", "[1.0, nan]"])
def test_what_a_journal_cannot_hold_is_refused(value: str) -> None:
    with pytest.raises(KernelFileError, match="JSON does not have"):
        parse_kernel(header(f"flags = {value}"), "cpp")


@pytest.mark.parametrize("name", ["'a-b'", "'1'", "'größe'"])
def test_a_knob_has_a_name_that_a_kernel_can_use(name: str) -> None:
    with pytest.raises(KernelFileError, match="use a name"):
        parse_kernel(header("[knobs]", f"{name} = [1, 2]"), "cpp")


def test_an_open_header_is_refused() -> None:
    with pytest.raises(KernelFileError, match="not closed"):
        parse_kernel("// /// kopt\n// entry = 'f'\n" + BODY, "cpp")


@pytest.mark.parametrize("mark", ["//", "#"])
@pytest.mark.parametrize("knob", ["[2, 4, 8]", "{default = 4, choices = [2, 4, 8]}"])
def test_a_settled_source_says_what_was_measured(mark: str, knob: str) -> None:
    lines = ["/// kopt", "entry = 'f' # why", "[knobs]", f"N = {knob}", "M = [true, false]", "///"]
    body = "int x;\n# no header [knobs]\n"
    source = "".join(f"{mark} {line}\n" for line in lines) + body
    candidate = parse_kernel(source, "cpp").with_values("test", N=8, M=False)
    again = parse_kernel(settled_source(candidate), "cpp")
    assert again.chosen == candidate.chosen == {"N": 8, "M": False}
    assert (again.knobs["N"].choices, again.entry) == ((2, 4, 8), "f")
    assert settled_source(candidate).endswith(body)
    assert parse_kernel(source, "cpp").chosen["N"] != 8


def test_a_source_without_chosen_values_is_left_alone() -> None:
    assert settled_source(parse_kernel(BODY, "cpp")) == BODY


def test_the_entry_of_a_cuda_file_is_the_kernel_not_its_launch_bounds() -> None:
    source = 'extern "C" __global__ void __launch_bounds__(256)\nscale(float *x) {}\n'
    assert parse_kernel(source, "cuda").entry == "scale"


def test_a_launch_plan_is_among_the_settings_and_outlives_other_knob_values() -> None:
    lines = (
        'entry = "f"', "[knobs]", "N = [2, 4]", "[[launch]]", 'grid = ["N"]', "block = [32]",
        "[[launch]]", 'kernel = "g"', "[scratch.part]", "shape = [4]",
    )  # fmt: skip
    candidate = parse_kernel(header(*lines), "cuda")
    wanted = [{"grid": ["N"], "block": [32]}, {"kernel": "g"}]
    assert candidate.settings == {"launch": wanted, "scratch": {"part": {"shape": [4]}}}
    again = parse_kernel(settled_source(candidate.with_values("tune", N=4)), "cuda")
    assert (again.settings, again.chosen) == (candidate.settings, {"N": 4})


def test_a_cuda_file_is_python_where_its_header_is() -> None:
    code = 'extern "C" __global__ void scale(float *x) {}'
    launcher = (
        f"# /// kopt\n# language = 'cuda'\n# ///\nSOURCE = '{code}'\ndef kernel_function(x): pass\n"
    )
    assert parse_kernel(launcher, "cuda").entry == "kernel_function"
    assert suffix_of(launcher, "cuda") == ".py"
    planned = f"// /// kopt\n// grid = 1\n// ///\n{code}\n"
    assert parse_kernel(planned, "cuda").entry == "scale"
    assert suffix_of(planned, "cuda") == suffix_of(code, "cuda") == ".cu"
    with pytest.raises(KernelFileError, match="no class ModelNew"):
        parse_kernel(launcher.replace("kernel_function", "other"), "cuda")


@pytest.mark.parametrize(
    ("language", "suffix"), [("cpp", ".cpp"), ("triton", ".py"), ("torch", ".py"), ("no", ".txt")]
)
def test_other_languages_have_one_form(language: str, suffix: str) -> None:
    for mark in ("#", "//"):
        source = f"{mark} /// kopt\n{mark} ///\n"
        assert suffix_of(source, language) == suffix
        assert is_python(source, language) is (suffix == ".py")
