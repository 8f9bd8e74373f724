"""What is found in sources that declare nothing, and where it is written."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopt.model.kernel_file import parse_kernel
from kopt_triton import TritonBackend
from kopt_triton.tunables import tunables

KERNEL = """\
import triton
import triton.language as tl

@triton.jit
def scale(x, out, n, {parameters}):
    pass

def kernel_function(x):
    {body}
"""


def source(*body: str, parameters: str = "BLOCK: tl.constexpr") -> str:
    return KERNEL.format(parameters=parameters, body="\n    ".join(body))


def found(text: str, *left_out: str) -> dict[str, tuple]:
    """Return the choices of each knob."""
    return {name: knob.choices for name, knob in tunables(text).items() if name not in left_out}


def written(text: str, **values: object) -> str:
    """Return a source with values of its tunables, as it is built."""
    candidate = parse_kernel(text, "triton", entry="kernel_function")
    knobs = TritonBackend().kopt_tunables(candidate)
    return candidate.with_knobs(knobs).with_values("test", **values).text


BLOCKS = {"BLOCK": (256, 512, 1024, 2048, 4096)}


@pytest.mark.parametrize(
    "body",
    [
        ["scale[(n,)](x, x, n, BLOCK=1024)"],
        ["scale[(n,)](x, x, n, 1024)"],
        ["scale[(n,)](x, x, n, BLOCK=0x400)"],
        ["scale[(n,)](x, x, n, BLOCK=tl.constexpr(1024))"],
        ["SIZE = 1024", "scale[(n,)](x, x, n, BLOCK=SIZE)"],
        ["SIZE: int = 1024", "scale[(n,)](x, x, n, SIZE)"],
        ["SIZE, other = 1024, 3", "scale[(n,)](x, x, n, BLOCK=SIZE)"],
        ["SIZE = 1024", "go = lambda: scale[(n,)](x, x, n, BLOCK=SIZE)"],
    ],
)
def test_a_block_at_a_launch(body):
    assert found(source(*body), "num_warps") == BLOCKS
    assert written(source(*body), BLOCK=512) == source(*body).replace("1024", "512").replace(
        "0x400", "512"
    )


def test_a_block_at_module_level_and_one_in_the_signature():
    text = "SIZE = 1024\n" + source("scale[(n,)](x, x, n, BLOCK=SIZE)")
    assert found(text, "num_warps") == BLOCKS
    text = source("scale[(n,)](x, x, n)", parameters="BLOCK: 'tl.constexpr' = 1024")
    assert found(text, "num_warps") == BLOCKS
    assert "constexpr' = 256)" in written(text, BLOCK=256)


@pytest.mark.parametrize(
    "body",
    [
        ["scale[(n,)](x, x, n, BLOCK=1000)"],
        ["scale[(n,)](x, x, n, BLOCK=True)"],
        ["scale[(n,)](x, x, n, BLOCK=triton.next_power_of_2(n))"],
        ["SIZE = x.shape[1]", "scale[(n,)](x, x, n, BLOCK=SIZE)"],
        ["SIZE = 64", "SIZE *= 2", "scale[(n,)](x, x, n, BLOCK=SIZE)"],
        ["SIZE = 64 if n else 128", "scale[(n,)](x, x, n, BLOCK=SIZE)"],
        ["for SIZE in (64, 128):", "    scale[(n,)](x, x, n, BLOCK=SIZE)"],
        ["SIZE = 64", "if n:", "    SIZE = 128", "scale[(n,)](x, x, n, BLOCK=SIZE)"],
        ["SIZE = 64", "def f():", "    nonlocal SIZE", "scale[(n,)](x, x, n, BLOCK=SIZE)"],
        ["scale[(n,)](x, *(x, n, 64))"],
        ["scale[(n,)](x, x, n, **{'BLOCK': 64})"],
        ["other[(n,)](x, x, n, BLOCK=64)"],
        ["scale[(n,)](x, x, n, BLOCK=2)"],
    ],
)
def test_what_is_no_block_or_not_one_value_is_left_alone(body):
    assert found(source(*body), "num_warps") == {}


@pytest.mark.parametrize(
    "name", ["N", "K", "HEAD_DIM", "head_dim", "EVEN_K", "N_COLS", "num_heads", "SEQ_LEN", "HAS_BIAS"]
)  # fmt: skip
def test_extents_of_the_data_and_switches_are_no_tunables(name):
    text = source(f"scale[(n,)](x, x, n, {name}=128)", parameters=f"{name}: tl.constexpr")
    assert found(text, "num_warps") == {}


@pytest.mark.parametrize("name", ["BLOCK_K", "BLOCK_SIZE", "BM", "TILE_N", "block_n", "BLOCK_DIM"])
def test_names_of_blocks(name):
    text = source(f"scale[(n,)](x, x, n, {name}=128)", parameters=f"{name}: tl.constexpr")
    assert list(found(text, "num_warps")) == [name]


def test_a_parameter_that_is_no_constexpr_is_no_block():
    assert found(source("scale[(n,)](x, x, 64, 64)", parameters="BLOCK"), "num_warps") == {}


def test_choices_stay_within_what_triton_takes_and_keep_the_present_value():
    def choices(value):
        return found(source(f"scale[(n,)](x, x, n, BLOCK={value})"))["BLOCK"]

    assert choices(16) == (16, 32, 64)
    assert choices(8) == (8, 16, 32)
    assert choices(8192) == (2048, 4096, 8192, 16384)


@pytest.mark.parametrize(
    "body",
    [
        ["scale[(triton.cdiv(n, 1024),)](x, x, n, BLOCK=1024)"],
        ["grid = (triton.cdiv(n, 1024),)", "scale[grid](x, x, n, BLOCK=1024)"],
        ["grid = lambda meta: (triton.cdiv(n, 1024),)", "scale[grid](x, x, n, BLOCK=1024)"],
        ["def grid(meta):", "    return (triton.cdiv(n, 1024),)", "scale[grid](x, x, n, 1024)"],
        ["blocks = -(-n // 1024)", "grid = (blocks, 4)", "scale[grid](x, x, n, BLOCK=1024)"],
        ["B = 1024", "scale[(triton.cdiv(n, 1024),)](x, x, n, BLOCK=B)"],
        ["B = 1024", "scale[(triton.cdiv(n, B),)](x, x, n, BLOCK=B)"],
    ],
)
def test_equal_literals_of_the_grid_are_tied(body):
    text = source(*body)
    assert found(text, "num_warps") == BLOCKS
    assert written(text, BLOCK=256) == text.replace("1024", "256")


def test_options_of_a_launch():
    text = source("W = 8", "scale[(8,)](x, x, n, 100, num_warps=W, num_stages=3)")
    assert found(text) == {"num_warps": (1, 2, 4, 8, 16), "num_stages": (1, 2, 3, 4, 5)}
    assert written(text, num_warps=2, num_stages=5) == text.replace("W = 8", "W = 2").replace(
        "num_stages=3", "num_stages=5"
    )
    assert "num_warps" not in found(source("scale[(8,)](x, x, n, 64, num_warps=w(n))"))


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("(x, x, n, 100)", "(x, x, n, 100, num_warps=8)"),
        ("(x, (x), (n), (100))", "(x, (x), (n), (100), num_warps=8)"),
        ("(x, x, n, BLOCK=100,)", "(x, x, n, BLOCK=100,num_warps=8)"),
        ("(x, x, n,\n        100,  # a, b\n    )", None),
        ("(x, x, n,\n        100  # größe,\n    )", None),
        ("()", "(num_warps=8)"),
    ],
)
def test_warps_that_a_launch_leaves_to_triton_are_offered(call, expected):
    text = source(f"scale[(8,)]{call}")
    assert found(text) == {"num_warps": (1, 2, 4, 8, 16)}
    changed = written(text, num_warps=8)
    if expected:
        assert changed == text.replace(call, expected)
    (before,) = (n for n in ast.walk(ast.parse(text)) if _is_launch(n))
    (after,) = (n for n in ast.walk(ast.parse(changed)) if _is_launch(n))
    assert ast.dump(after.keywords.pop().value) == "Constant(value=8)"
    assert ast.dump(after) == ast.dump(before)


def _is_launch(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)


def test_several_kernels_and_launches_have_names_of_their_own():
    text = (
        source(
            "scale[(n,)](x, x, n, BLOCK=64)",
            "scale[(n,)](x, x, n, BLOCK=64)",
            "scale[(n,)](x, x, n, BLOCK=128)",
            "more[(n,)](x, BLOCK=64, num_warps=8)",
        )
        + "\n@triton.jit\ndef more(x, BLOCK: tl.constexpr):\n    pass\n"
    )
    assert list(found(text)) == [
        "scale_BLOCK", "scale_num_warps", "scale_BLOCK_2", "more_BLOCK", "more_num_warps",
    ]  # fmt: skip
    assert written(text, scale_BLOCK=32).count("BLOCK=32") == 2


def test_one_name_for_two_parameters_is_one_tunable():
    text = source(
        "B = 64", "scale[(n,)](x, x, n, B, B)", parameters="BM: tl.constexpr, BN: tl.constexpr"
    )
    assert list(found(text, "num_warps")) == ["BM"]
    text = source("B = 16", "scale[(n,)](x, x, n, BLOCK=B, num_warps=B)")
    assert found(text) == {}


CONFIGURATIONS = "[triton.Config({'BLOCK': 64}), triton.Config({'BLOCK': 128},\n num_warps=8)]"


def autotuned(configs: str, before: str = "") -> str:
    text = source("scale[lambda meta: (n // meta['BLOCK'],)](x, x, n)")
    decorator = f"{before}@triton.autotune({configs}, key=['n'])\n@triton.jit"
    return text.replace("@triton.jit", decorator)


def test_configurations_are_one_knob():
    text = autotuned(f"configs={CONFIGURATIONS}")
    assert found(text) == {"config": ("all", 0, 1)}
    assert tunables(text)["config"].default == "all"
    kept = "[triton.Config({'BLOCK': 128},\n num_warps=8)]"
    assert written(text, config=1) == text.replace(CONFIGURATIONS, kept)


def test_configurations_under_a_name_or_from_a_comprehension():
    named = autotuned("CONFIGS", f"CONFIGS = {CONFIGURATIONS}\n")
    expected = named.replace("autotune(CONFIGS", "autotune([triton.Config({'BLOCK': 64})]")
    assert written(named, config=0) == expected
    made = "[triton.Config({'BLOCK': b}, num_warps=w) for b in (64, 128) for w in [2, 4, 8]]"
    assert found(autotuned(made)) == {"config": ("all", *range(6))}
    assert written(autotuned(made), config=5) == autotuned(f"({made})[5:6]")


@pytest.mark.parametrize(
    "configs",
    [
        "configs()", "[*MORE, triton.Config({})]", "[triton.Config({'BLOCK': 64})]", "UNKNOWN",
        f"[triton.Config({{}}) for n in ({'1, ' * 300})]",
        "[triton.Config({}) for n in range(9)]", "[triton.Config({}) for n in (1, 2) if n > 1]",
    ],
)  # fmt: skip
def test_configurations_that_cannot_be_counted_are_left_alone(configs):
    assert found(autotuned(configs)) == {}


def test_two_autotuned_kernels_have_a_knob_each():
    text = autotuned(CONFIGURATIONS)
    more = text[text.index("@triton.autotune") : text.index("def kernel_function")]
    text = text.replace("def kernel_function", more.replace("def scale", "def more") + "def kernel_function")  # fmt: skip
    assert list(found(text)) == ["scale_config", "more_config"]


@pytest.mark.parametrize("text", ["def f(:", "x = '\ud800'", "\0", "(" * 5000, "", "x = 1"])
def test_a_source_without_tunables_has_none(text):
    assert tunables(text) == {}


def test_another_languages_sources_are_left_to_others():
    other = parse_kernel("def kernel_function(x):\n    return x\n", "torch")
    assert TritonBackend().kopt_tunables(other) is None


def test_finding_imports_neither_torch_nor_triton():
    code = (
        "import sys, kopt\nfrom kopt_triton import TritonBackend\n"
        "c = kopt.Candidate(language='triton', source='x = 1', entry='f')\n"
        "assert TritonBackend().kopt_tunables(c) == {}\n"
        "print(sorted({'torch', 'triton', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


SIZES = st.sampled_from([16, 64, 128, 1024, 4096])


@st.composite
def sources(draw):
    """A source in one of many layouts, with the values of its two parameters."""
    first, second = draw(SIZES), draw(SIZES)
    end = draw(st.sampled_from(["\n", "\r\n"]))
    note = draw(st.sampled_from(["", "  # größe", "  # 𝛼β", "; s = 'ü'"]))
    blank = draw(st.sampled_from(["", " ", "\n        ", "\n    "]))
    text = source(
        f"FIRST ={blank.strip(chr(10))}{first}{note}",
        f"grid = ({blank}triton.cdiv(n, FIRST),{blank}triton.cdiv(n, {second}))",
        f"scale[grid](x, 'ß', n,{blank}BM={blank}FIRST,{blank}BN={second}{blank})",
        parameters="BM: tl.constexpr, BN: tl.constexpr",
    )
    return text.replace("\n", end), first, second


@settings(deadline=None, max_examples=80)
@given(sources(), st.data())
def test_any_layout_keeps_every_other_character(made, data):
    text, first, second = made
    knobs = tunables(text)
    values = {name: data.draw(st.sampled_from(knob.choices)) for name, knob in knobs.items()}
    changed = written(text, **values)
    assert written(text) == text
    again = tunables(changed)
    assert {n: k.default for n, k in again.items()} == values
    assert (
        written(changed, **{n: k.default for n, k in knobs.items() if n != "num_warps"}).replace(
            f", num_warps={values['num_warps']}", ""
        )
        == text
    )
    assert set(knobs) == {"BM", "BN", "num_warps"}
    assert {n: k.default for n, k in knobs.items()} == {"BM": first, "BN": second, "num_warps": 4}


@settings(deadline=None, max_examples=200)
@given(st.text(st.sampled_from("x=1(){}[],:\n #'@tl.jit defg64\\ \r\t\"")))
def test_any_text_is_read_or_left_alone(text):
    for knob in tunables(text).values():
        assert knob.edits
