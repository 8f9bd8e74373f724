from __future__ import annotations

import keyword
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopt.errors import ProblemError
from kopt.formats.dtypes import KIND_OF
from kopt.formats.native import NativeFormat, problem_from_toml
from kopt.model.problem import Problem, Workload

REFERENCE = "def f(x, w, eps=1e-6, *, flip=False):\n    return x * w\n"
DESCRIPTION = """
name = "rms"
mutates = ["x"]
[reference]
function = "f"
[inputs.x]
shape = ["rows", "cols * 2", 3]
dtype = "float16"
[inputs.w]
shape = ["cols"]
distribution = "uniform"
low = 0.5
[inputs.eps]
value = 1e-5
[inputs.flip]
value = true
[[workloads]]
name = "big"
rows = 4096
cols = 1024
weight = 2
[[workloads]]
role = "check"
rows = 3
cols = 7
[tolerance]
factor = 4
precision = "strict"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "problem.toml").write_text(DESCRIPTION)
    return tmp_path


def load(path):
    return NativeFormat().kopt_load_problem(path)


def test_a_folder_is_read_completely(folder):
    problem = load(folder)
    assert (problem.name, problem.format, problem.mutates) == ("rms", "native", ("x",))
    assert [spec.name for spec in problem.inputs] == ["x", "w", "eps", "flip"]
    x, w, eps, flip = problem.inputs
    assert (x.shape, x.dtype, x.distribution) == (("rows", "cols * 2", 3), "float16", "normal")
    assert (w.dtype, w.distribution, w.low, w.high) == ("float32", "uniform", 0.5, 1.0)
    assert (eps.value, eps.shape, eps.keyword) == (1e-5, None, False)
    assert (flip.value, flip.keyword) == (True, True)
    assert problem.workloads == (
        Workload(name="big", sizes={"rows": 4096, "cols": 1024}, weight=2.0),
        Workload(name="3x7", sizes={"rows": 3, "cols": 7}, role="check"),
    )
    assert (problem.tolerance.factor, problem.tolerance.precision) == (4.0, "strict")
    assert problem.reference.kind == "function"
    assert problem.reference.source == REFERENCE
    assert (problem.reference.entry, problem.reference.filename) == ("f", "reference.py")


def test_the_description_itself_is_a_problem_too(folder):
    assert load(folder / "problem.toml") == load(folder)


def test_the_name_defaults_to_the_folders(folder):
    (folder / "problem.toml").write_text(DESCRIPTION.replace('name = "rms"\n', ""))
    assert load(folder).name == folder.name


ONE_FILE = """# /// kopt-problem
# [reference]
# function = "f"
#
# [inputs.x]
# shape = [8, 8]
# ///
import torch


def f(x):
    return torch.relu(x)
"""


def test_one_file_is_its_own_reference(tmp_path):
    path = tmp_path / "relu.py"
    path.write_text(ONE_FILE)
    problem = load(path)
    assert (problem.name, problem.workloads) == ("relu", (Workload(),))
    assert (problem.reference.source, problem.reference.filename) == (ONE_FILE, "relu.py")


@pytest.mark.parametrize("text", ["def f(x): ...\n", "# /// script\n# ///\n", "not Python at all"])
def test_other_files_are_left_to_other_formats(tmp_path, text):
    path = tmp_path / "other.py"
    path.write_text(text)
    assert load(path) is None
    assert load(tmp_path) is None


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("# /// kopt-problem\n# a = 1\nimport x\n", ":3: the kopt-problem block ends without"),
        ("# /// kopt-problem\n# a = 1\n", "not closed"),
        ("x = 1\n# /// kopt-problem\n# name = 'a'\n# what?\n# ///\n", "line 4"),
        (ONE_FILE.replace('function = "f"', 'function = "f"\n# file = "g.py"'), "file itself"),
    ],
)
def test_a_wrong_block_is_located(tmp_path, block, message):
    path = tmp_path / "p.py"
    path.write_text(block)
    with pytest.raises(ProblemError, match=message):
        load(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "rms"', 'nam = "rms"', "problem.toml: nam: unknown key; did you mean 'name'"),
        ('dtype = "float16"', 'dtyp = "float16"', "inputs.x.dtyp: unknown key; did you mean 'dtype'"),
        ("weight = 2", "wieght = 2", "workload 'big' has 'wieght'.*; did you mean 'weight'"),
        ("weight = 2", 'weight = "2"', r"workloads\[1\].weight must be a number"),
        ("weight = 2", "weight = 0", "weight must be more than 0"),
        ("weight = 2", "weight = true", "weight must be a number"),
        ("weight = 2", "sizes = {a = 1}", "sizes are written directly"),
        ('role = "check"', 'role = "chek"', "'measure' or 'check'"),
        ('role = "check"', "rows2 = 3", "'3x3x7' has 'rows2', which no shape uses; did you mean 'rows'"),
        ("rows = 3\n", "", "inputs.x.shape, workload '7': .*no name 'rows'"),
        ("rows = 3\n", "rows = 0\n", "a size is a positive integer, not 0"),
        ("rows = 3\n", "rows = 3.0\n", "a size is a positive integer, not 3.0"),
        ("rows = 3\n", "rows = true\n", "a size is a positive integer, not True"),
        ('"cols * 2"', '"cols / 2"', "which is no integer; divide with //"),
        ('"cols * 2"', '"cols - 7"', "workload '3x7': 'cols - 7' gives 0; extents are positive"),
        ('"cols * 2"', '"cols.shape[0]"', "inputs.x.shape, workload 'big': 'cols.shape"),
        ('"cols * 2"', '"cols **"', "inputs.x.shape, workload 'big'"),
        ('"cols * 2"', '"open(1)"', "not allowed here"),
        ('"cols * 2"', "2.5", "2.5 is neither an integer nor an expression"),
        ('"cols * 2"', "-1", "-1 gives -1; extents are positive"),
        ("float16", "complex64", "real numbers only"),
        ("float16", "half", "unknown dtype 'half'; write 'float16'"),
        ("float16", "torch.float16", "write 'float16'"),
        ("float16", "flot16", "did you mean 'float16'"),
        ("float16", "int32", "high is missing: 'integers'"),
        ('"uniform"', '"gaussian"', "'gaussian' does not fit float32"),
        ('"uniform"', '"normal"', "inputs.w.low: 'normal' has no range"),
        ('"uniform"', '"uniform"\nhigh = 0.5', "0.5 is not below high = 0.5"),
        ('"uniform"', '"integers"\nhigh = 9', "whole numbers"),
        ('"uniform"\nlow = 0.5', '"bernoulli"\nhigh = 1.5', "probability of one"),
        ("value = 1e-5", "value = inf", "must be finite"),
        ("value = 1e-5", "value = [1]", "must be a number, string or bool"),
        ("value = 1e-5", "value = 1\nshape = [1]", "shape and value"),
        ("value = 1e-5", "value = 1\nlow = 0", "only a tensor .* has a low"),
        ("value = 1e-5", "keyword = true", "inputs.eps has neither shape nor value"),
        ('["x"]', '["y"]', "mutates names 'y', which is no tensor input"),
        ('["x"]', '["eps"]', "mutates names 'eps', which is no tensor input"),
        ('["x"]', '["x", "x"]', "each once"),
        ("factor = 4", "factor = -1", "tolerance.factor must be more than 0"),
        ("factor = 4", "facter = 4", "tolerance.facter: unknown key; did you mean 'factor'"),
        ('"strict"', '"exact"', "tolerance.precision must be one of"),
        ('function = "f"', 'function = "g"', "no function 'g'.*known: f"),
        ('function = "f"', 'func = "f"', "reference.function is missing"),
        ('function = "f"', 'function = "f"\nfile = "none.py"', "none.py: no such file"),
        ('function = "f"', 'function = "f"\nfile = 3', "reference.file must be a string"),
        ("[inputs.eps]", "[inputs.esp]", "no parameter is called 'esp'; did you mean 'eps'"),
        ("[inputs.w]", "[inputs.v]", "parameter 'w' has no input; add .inputs.w."),
        ("[inputs.w]", "[inputs.w]\nkeyword = true", "'eps' would arrive as 'w'|multiple values"),
        ("[[workloads]]", "[workloads]", "not valid TOML|must be a list"),
        ('[tolerance]', '[[workloads]]\nname = "big"\nrows=1\ncols=1\n[tolerance]', "used twice: big"),
    ],
)  # fmt: skip
def test_a_wrong_description_is_refused_by_name(folder, old, new, message):
    assert old in DESCRIPTION
    (folder / "problem.toml").write_text(DESCRIPTION.replace(old, new, 1))
    with pytest.raises(ProblemError, match=message) as caught:
        load(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("def f(x, w, eps, flip):\n  return (\n", r"reference.py:\d+: syntax error"),
        ("def f(x, w, w, eps, flip): ...\n", "reference.py:1: syntax error: duplicate argument"),
        ("x = '\0'", "null bytes"),
        ("f = lambda x, w, eps, flip: x", "reference.py:1: f is not defined by a 'def'"),
        ("from torch import f", "f is not defined by a 'def'"),
        ("async def f(x, w, eps, flip): ...", "f is async"),
        ("class f: ...", "not defined by a 'def'"),
        ("def f(w, x, eps=1, *, flip): ...", "'x' would arrive as 'w'; put them in the order w, x"),
        ("def f(x, w, eps=1): ...", "no parameter is called 'flip'"),
        ("def f(x, w, eps, flip, axis): ...", "parameter 'axis' has no input"),
        ("def f(x, w, *rest, flip): ...", None),
        ("def f(x, w, **rest): ...", "too many positional"),
        ("from .near import y\ndef f(x, w, eps, flip): ...", "'.near', but a reference must be one file"),
        ("def f(x, w, eps, flip):\n  import near.deep as y", ":2: imports the neighbouring module 'near.deep'"),
        ("import math, os\ntry:\n  def f(x, w, eps, flip): ...\nexcept E: ...", None),
        ("@decorated\ndef f(x, w, eps, flip): '\\d'", None),
        ("def f(): ...\ndef f(x, w, eps, flip): ...", None),
    ],
)  # fmt: skip
def test_the_reference_is_checked_without_running_it(folder, reference, message):
    (folder / "near.py").write_text("y = 1\n")
    (folder / "math.py").write_text("a file that the standard library hides\n")
    (folder / "reference.py").write_text(reference)
    if message is None:
        assert load(folder).reference.source == reference
    else:
        with pytest.raises(ProblemError, match=message):
            load(folder)


def test_nothing_is_executed(folder):
    (folder / "reference.py").write_text("raise SystemExit(7)\n" + REFERENCE)
    assert load(folder).reference.entry == "f"


def test_a_reference_that_is_not_text_is_refused(folder):
    (folder / "reference.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProblemError, match="not UTF-8"):
        load(folder)


LABELS = """
name = "loss"

[reference]
file = "reference.py"
function = "f"

[inputs.x]
shape = ["rows", "classes"]

[inputs.labels]
shape = ["rows"]
dtype = "DTYPE"
low = LOW
high = HIGH

[[workloads]]
rows = 4
classes = 10

[[workloads]]
rows = 4
classes = 300
"""


def labels(folder, high, *, low="0", dtype="int64"):
    text = LABELS.replace("HIGH", high).replace("LOW", low).replace("DTYPE", dtype)
    (folder / "problem.toml").write_text(text)
    (folder / "reference.py").write_text("def f(x, labels):\n    return x\n")
    return load(folder)


def test_labels_may_go_by_a_workloads_size(folder):
    problem = labels(folder, '"classes - 1"')
    spec = problem.inputs[1]
    assert spec.high == "classes - 1"
    assert [spec.high_at(w.sizes) for w in problem.workloads] == [9, 299]
    assert Problem.model_validate(problem.to_json()) == problem
    assert labels(folder, "10").inputs[1].high_at({}) == 10


@pytest.mark.parametrize(
    ("high", "more", "message"),
    [
        ('"clases"', {}, "inputs.labels.high, workload '4x10': .*clases"),
        ('"classes - 10"', {}, "gives 0; extents are positive"),
        ('"classes"', {"low": "10"}, "gives 10, which is not above low"),
        ('"classes"', {"low": "0.5"}, "whole numbers"),
        ('"classes"', {"dtype": "int8"}, "gives 300, and int8 holds 127 at most"),
        ('"classes"', {"dtype": "float32"}, "normal.* has no range|high must be a number"),
        ("true", {}, "high must be a number"),
    ],
)
def test_a_size_that_is_no_end_of_labels_is_refused(folder, high, more, message):
    with pytest.raises(ProblemError, match=message):
        labels(folder, high, **more)


name = st.from_regex(r"[a-z]{1,6}", fullmatch=True).filter(
    lambda word: not keyword.iskeyword(word) and word not in {"name", "weight", "role"}
)
extent = st.integers(1, 10**6)


@given(
    st.lists(name, min_size=1, max_size=4, unique=True),
    st.lists(st.lists(extent, min_size=4, max_size=4), min_size=1, max_size=3),
    st.lists(st.tuples(name, st.lists(st.integers(0, 3) | extent, max_size=4), st.sampled_from(list(KIND_OF))),
             min_size=1, max_size=4, unique_by=lambda row: row[0]),
)  # fmt: skip
def test_any_well_formed_description_loads_as_written(sizes, rows, inputs):
    """Extents 0 to 3 stand for the size of that number, so that all sizes are used."""
    inputs[0][1][:] = range(len(sizes))
    lines, shapes = ["[reference]", 'function = "g"'], {}
    for label, extents, dtype in inputs:
        shape = [sizes[e % len(sizes)] if e < 4 else e for e in extents]
        shapes[label] = tuple(shape)
        ends = "\nhigh = 100" if KIND_OF[dtype] == "int" else ""
        lines += [
            f"[inputs.{label}]",
            f"shape = {shape!r}".replace("'", '"'),
            f'dtype = "{dtype}"{ends}',
        ]
    for number, row in enumerate(rows):
        lines += ["[[workloads]]", f'name = "w{number}"']
        lines += [f"{size} = {value}" for size, value in zip(sizes, row, strict=False)]
    source = f"def g({', '.join(shapes)}): ...\n"
    path = Path("nowhere")
    problem = problem_from_toml(
        "\n".join(lines), path / "problem.toml", path / "reference.py", source, name="n"
    )
    assert {spec.name: spec.shape for spec in problem.inputs} == shapes
    assert [spec.dtype for spec in problem.inputs] == [dtype for _, _, dtype in inputs]
    assert [list(w.sizes) for w in problem.workloads] == [sizes] * len(rows)


@given(st.text(max_size=40), st.sampled_from(["toml", "source", "shape"]))
def test_any_text_gives_a_problem_or_a_problem_error(text, place):
    toml = '[reference]\nfunction = "f"\n[inputs.x]\nshape = [SHAPE]\n'
    toml = toml.replace("SHAPE", repr(text).replace("'", '"') if place == "shape" else "4")
    toml, source = (toml + text if place == "toml" else toml), "def f(x): ...\n"
    path = Path("nowhere")
    try:
        problem_from_toml(
            toml, path / "p.toml", path / "r.py", source + text * (place == "source"), name="n"
        )
    except ProblemError as error:
        assert "nowhere" in str(error)


def test_loading_imports_no_framework(folder):
    code = (
        "import sys, pathlib; from kopt.formats.native import NativeFormat; "
        f"assert NativeFormat().kopt_load_problem(pathlib.Path({str(folder)!r})); "
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
