from __future__ import annotations

import shutil
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopt.model.candidate import Candidate, Knob
from kopt.model.fingerprint import fingerprint


def of(source: str, language: str = "cpp", **fields: object) -> str:
    return fingerprint(
        Candidate.model_validate({"language": language, "source": source, "entry": "f", **fields})
    )


CPP_SAME = {
    "line comment": ("int a = 1; // one\nint b;", "int a = 1;\nint b;"),
    "block comment": ("int /* x\n y */ a;", "int a;"),
    "comment is a separator": ("int/**/a;", "int a;"),
    "blank lines": ("int a;\n\n\nint b;", "int a;\nint b;"),
    "layout": ("f(a,b){return a+b;}", "f ( a , b )\n{\n  return a + b ;\n}"),
    "line continuation": ("#define A 1 + \\\n  2\nint x;", "#define A 1 + 2\nint x;"),
    "comment continued": ("int a; // c \\\n int hidden;\nint b;", "int a;\nint b;"),
    "line ends": ("int a;\r\n#pragma omp x\r\nint b;", "int a;\n#pragma omp x\nint b;"),
    "directive layout": ("#  include   <vector>\nint a;", "#include <vector>\n\nint a;"),
    "comment in a directive": ("#define A /* one\n two */ 1\nA", "#define A 1\nA"),
    "kopt header": ("// /// kopt\n// entry = 'f'\n// ///\nint a;", "int a;"),
    "stringifying, more space": (
        "#define S(x) #x\n  auto a = S(p   q); // c\n\n",
        "#define S(x) #x\nauto a = S(p q);",
    ),
}

CPP_DIFFERENT = {
    "string with slashes": ('auto a = "x//y";', 'auto a = "x//z";'),
    "space in a string": ('auto a = "x y";', 'auto a = "x  y";'),
    "escaped quote": (r'auto a = "\"/* x */";', r'auto a = "\"/* y */";'),
    "character": ("char a = ' ';", "char a = '\t';"),
    "quote character": ("char a = '\"'; /* \" */ int b;", "char a = '\"'; /* \" */ int c;"),
    "raw string": ('auto a = R"(x // y\n)";', 'auto a = R"(x // z\n)";'),
    "raw string, line": ('auto a = R"(x \\\ny)";', 'auto a = R"(x y)";'),
    "raw string, delimiter": ('auto a = R"ab(x)" // y)ab";', 'auto a = R"ab(x)" // z)ab";'),
    "raw string, prefix": ('auto a = u8R"(/* x */)";', 'auto a = u8R"(/* y */)";'),
    "operators": ("x = a++ + b;", "x = a + ++b;"),
    "number": ("x = 1.0f;", "x = 1.0;"),
    "digit separators": ("x = 1'000; y = 'a';", "x = 1'000; y = 'b';"),
    "words": ("int ab;", "int a b;"),
    "macro or function-like macro": ("#define F(x) x\nF(1)", "#define F (x) x\nF(1)"),
    "where a directive ends": ("#define A 1\nint a;", "#define A 1 int a;\n"),
    "pragma": ("#pragma unroll 4\nfor(;;);", "#pragma unroll 8\nfor(;;);"),
    "header name": ("#include <a/b>\n", "#include <a/c>\n"),
    "header name with slashes": ("#include <a//b>\n", "#include <a//c>\n"),
    "stringifying, space": (
        "#define S(x) #x\nauto a = S(p q);", "#define S(x) #x\nauto a = S(p+q);",
    ),
    "stringified space": (
        "#define S(x) #x\nauto a = S(p+ q);", "#define S(x) #x\nauto a = S(p+q);",
    ),
    "unclosed comment": ("int a; /* x", "int a; /* y"),
    "unclosed raw string": ('auto a = R"(x // y', 'auto a = R"(x // z'),
    "unclosed string": ('#error "x // y', '#error "x // z'),
    "launch": ("k<<<1, 2>>>(x);", "k<<<2, 2>>>(x);"),
    "null character": ("int a;\0", "int a;"),
}  # fmt: skip


@pytest.mark.parametrize("name", CPP_SAME)
def test_cpp_layout_and_comments_do_not_count(name: str) -> None:
    first, second = CPP_SAME[name]
    assert of(first) == of(second)
    assert of(first, "cuda") == of(second, "cuda")


@pytest.mark.parametrize("name", CPP_DIFFERENT)
def test_cpp_code_counts(name: str) -> None:
    first, second = CPP_DIFFERENT[name]
    assert of(first) != of(second)


PYTHON_SAME = {
    "comment": ("a = 1  # one\nb = 2\n", "a = 1\nb = 2\n"),
    "blank lines": ("def f():\n\n    # why\n    return 1\n", "def f():\n    return 1\n"),
    "width of indentation": ("if a:\n  b\nc\n", "if a:\n        b\nc\n"),
    "spaces": ("f( a,b )\n", "f(a, b)\n"),
    "brackets over lines": ("f(\n    a,\n    b)\n", "f(a, b)\n"),
    "continuation": ("a = 1 + \\\n    2\n", "a = 1 + 2\n"),
    "no last newline": ("a = 1", "a = 1\n"),
    "kopt header": ("# /// kopt\n# entry = 'f'\n# ///\na = 1\n", "a = 1\n"),
}
PYTHON_DIFFERENT = {
    "indentation": ("if a:\n    b\n    c\n", "if a:\n    b\nc\n"),
    "docstring": ('def f():\n    """One."""\n', 'def f():\n    """Two."""\n'),
    "hash in a string": ("a = '# x'\n", "a = '# y'\n"),
    "space in a string": ("a = 'x y'\n", "a = 'x  y'\n"),
    "f-string": ("a = f'{x = }'\n", "a = f'{x=}'\n"),
    "nested f-string": ("a = f'{f(\"# {y}\")} b'\n", "a = f'{f(\"# {z}\")} b'\n"),
    "lines": ("a\nb\n", "a, b\n"),
    "broken": ("def f(:\n  '''a", "def f(:\n  '''b"),
}


@pytest.mark.parametrize("name", PYTHON_SAME)
def test_python_layout_and_comments_do_not_count(name: str) -> None:
    first, second = PYTHON_SAME[name]
    assert of(first, "triton") == of(second, "triton")


@pytest.mark.parametrize("name", PYTHON_DIFFERENT)
def test_python_code_counts(name: str) -> None:
    first, second = PYTHON_DIFFERENT[name]
    assert of(first, "torch") != of(second, "torch")


def test_everything_else_that_runs_counts() -> None:
    knobs = {"N": Knob(default=1, choices=(1, 2))}
    prints = {
        of("int a;"),
        of("int a;", "cuda"),
        of("int a;", entry="g"),
        of("int a;", settings={"flags": ["-O2"]}),
        of("int a;", knobs=knobs),
        of("int a;", knobs=knobs, values={"N": 2}),
    }
    assert len(prints) == 6
    assert of("int a;", knobs=knobs) == of("int a;", knobs=knobs, values={"N": 1})
    assert of("int a;", strategy="x", idea="y", parents=("z",)) == of("int a;")


def test_an_unknown_language_counts_as_it_stands() -> None:
    assert of("a  b", "mojo") != of("a b", "mojo")


@given(st.text(alphabet="ab\"'\\/*#R()\n \t01.+<>u8", max_size=60))
def test_blank_lines_before_any_cpp_text_do_not_count(text: str) -> None:
    assert of("\n \n" + text) == of(text)


@given(st.text(max_size=60))
def test_any_python_text_has_a_fingerprint(text: str) -> None:
    assert len(of(text, "triton")) == 16


@pytest.mark.parametrize(
    "piece", ["/* ", 'R"(', 'R"x( ', '\\"', "'\\'", '"', "a(", "// \\\n", "1'"]
)
def test_a_hostile_source_takes_no_long_time(piece: str) -> None:
    started = time.perf_counter()
    of(piece * (30_000 // len(piece)))
    assert time.perf_counter() - started < 2


PIECES = [
    "int a = 1;", "a = a++ + a;", 's("x // y");', "c('\\'');", 's(R"(/* \\\n)");', "a >>= 2;",
    "#define F(x) x\n", "#define G (1)\n", "/* c */", "// c\n", "// c \\\n d\n", "\\\n", "F(a);",
    "\n", "\t", "#pragma omp simd\n", "#if A\n", "#else\n", "#endif\n", "1'000.0e+5;", "{", "}",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_comments_among_code_do_not_count(pieces: list[str]) -> None:
    plain = "\n".join(pieces)
    without = "\n".join(piece for piece in pieces if not piece.startswith(("/*", "//", "\n", "\t")))
    assert of(plain) == of(without) or "\\\n" in pieces


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compare with")
def test_sources_with_one_fingerprint_preprocess_alike() -> None:
    for first, second in CPP_SAME.values():
        if "#include" not in first.replace(" ", ""):
            assert _preprocessed(first) == _preprocessed(second)


def _preprocessed(source: str) -> list[str]:
    done = subprocess.run(
        ["g++", "-E", "-P", "-x", "c++", "-"], input=source, text=True, capture_output=True,
        check=True,
    )  # fmt: skip
    return "".join(done.stdout.split()).splitlines()
