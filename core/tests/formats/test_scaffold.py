from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopt.errors import ProblemError
from kopt.formats.excerpt import excerpt
from kopt.formats.native import NativeFormat
from kopt.formats.scaffold import scaffold

FILE = '''"""A script with a kernel in it."""

from __future__ import annotations
import math, os
import torch
from typing import Optional, List

torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = True
EPS = 1e-6; OTHER = 3
TABLE = {}
TABLE["a"] = EPS
UNUSED = 4
x = torch.randn(8)


def other(t):
    return t


def scaled(t, *, by=OTHER):
    return t * math.pi * TABLE["a"] * by


@torch.no_grad()
def rms_norm(x: torch.Tensor, w, eps: float = -1e-6, dims=(1, 2), *rest, flag: bool, mode="mean",
             limit: Optional[int] = None):
    def inner(y):
        return scaled(y) + eps
    return inner(x) * w


if __name__ == "__main__":
    EPS = 1.0
    w = torch.ones(8)
    print(rms_norm(x, w))
'''


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(FILE)
    return path


def load(folder):
    return NativeFormat().kopt_load_problem(folder)


def test_the_result_loads_and_has_an_input_for_every_parameter(script, tmp_path):
    text = scaffold(script, "rms_norm", tmp_path / "new")
    assert (tmp_path / "new" / "problem.toml").read_text() == text
    problem = load(tmp_path / "new")
    assert problem.name == problem.reference.entry == "rms_norm"
    tensors = [spec for spec in problem.inputs if spec.shape is not None]
    assert [(spec.name, spec.shape) for spec in tensors] == [
        ("x", ("rows", "cols")),
        ("w", ("rows", "cols")),
    ]
    scalars = {s.name: (s.value, s.keyword) for s in problem.inputs if s.shape is None}
    # dims cannot be passed, so what follows it goes by keyword.
    assert scalars == {"eps": (-1e-6, False), "flag": (True, True), "mode": ("mean", True)}
    assert problem.workloads[0].sizes == {"rows": 1024, "cols": 1024}


def test_what_follows_a_gap_and_is_passed_by_position_only_is_left_out(tmp_path):
    (tmp_path / "s.py").write_text("def g(x, dims=(1,), scale=2, /, *, eps=1.0): return x\n")
    assert "dims=(1,), scale=2" in scaffold(tmp_path / "s.py", "g", tmp_path / "new")
    assert [(s.name, s.keyword) for s in load(tmp_path / "new").inputs] == [
        ("x", False),
        ("eps", True),
    ]


def test_the_description_tells_what_to_edit_and_what_was_left_out(script, tmp_path):
    text = scaffold(script, "rms_norm", tmp_path / "new")
    assert "keep their defaults: dims=(1, 2), *rest, limit=None" in text
    assert "line 8: torch.manual_seed(0)" in text
    assert "line 9: torch.backends.cuda.matmul.allow_tf32 = True" in text
    assert "print" not in text
    assert text.count("EDIT") >= 5


def test_the_reference_has_what_the_function_needs_and_no_more(script):
    cut = excerpt(FILE, "rms_norm", script)
    tree = ast.parse(cut.source)
    bound = {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    assert bound == {"EPS", "OTHER", "TABLE"}
    assert [n.name for n in tree.body if isinstance(n, ast.FunctionDef)] == ["scaled", "rms_norm"]
    imports = [ast.unparse(n) for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    assert imports == [
        "from __future__ import annotations",
        "import math",
        "import torch",
        "from typing import Optional",
    ]
    assert 'TABLE["a"] = EPS' in cut.source
    assert "@torch.no_grad()" in cut.source
    assert "__main__" not in cut.source
    assert cut.unresolved == ()


def test_the_excerpt_runs_as_the_original_does(tmp_path):
    source = (
        "import math as m\nfrom os.path import *\nA = 2\nB = [A]\nB.append(5)\n"
        "try:\n    import nothing_of_the_kind as n\nexcept ImportError:\n    n = None\n"
        "class K:\n    k = A\n    def go(self): return B[1] + self.k\n"
        "def even(v): return v == 0 or odd(v - 1)\n"
        "def odd(v): return v != 0 and even(v - 1)\n"
        "def g(v):\n    return [K().go() + i * m.floor(2.5) for i in range(v)], n, even(v), join('a', 'b')\n"
        "B = tuple(B)\n"
    )
    whole, part = {}, {}
    cut = excerpt(source, "g", tmp_path / "s.py")
    exec(source, whole)
    exec(cut.source, part)
    assert part["g"](4) == whole["g"](4)
    assert cut.unresolved == ()


def test_names_that_nothing_defines_are_told(tmp_path):
    path = tmp_path / "s.py"
    path.write_text("def g(x):\n    return x + mystery\n")
    assert excerpt(path.read_text(), "g", path).unresolved == ("mystery",)
    assert "does not define: mystery" in scaffold(path, "g", tmp_path / "new")


def test_an_existing_folder_is_not_overwritten(script, tmp_path):
    folder = tmp_path / "new"
    scaffold(script, "rms_norm", folder)
    (folder / "problem.toml").write_text("mine")
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ProblemError, match=r"exists already; .*--force"):
        scaffold(script, "rms_norm", folder)
    assert (folder / "problem.toml").read_text() == "mine"
    text = scaffold(script, "rms_norm", folder, force=True)
    assert (folder / "problem.toml").read_text() == text
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_file_in_the_way_is_never_overwritten(script, tmp_path):
    (tmp_path / "new").write_text("mine")
    with pytest.raises(ProblemError, match="exists already"):
        scaffold(script, "rms_norm", tmp_path / "new", force=True)
    assert (tmp_path / "new").read_text() == "mine"


def test_the_folder_is_named_after_the_function(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scaffold(script, "rms_norm")
    assert load(tmp_path / "rms_norm") is not None


@pytest.mark.parametrize(
    ("source", "function", "message"),
    [
        ("def g(x): ...", "gg", "no function 'gg'; did you mean 'g'"),
        ("def g(x:\n", "g", "s.py:1: syntax error"),
        ("def g(): ...", "g", "no parameter that kopt could pass"),
        ("def g(*xs): ...", "g", "no parameter that kopt could pass"),
        ("g = abs", "g", "not defined by a 'def'"),
        ("import near\ndef g(x): return near.f(x)", "g", "neighbouring module 'near'"),
        ("from . import near\ndef g(x): return near.f(x)", "g", "must be one file"),
    ],
)
def test_what_cannot_become_a_problem_is_refused_before_writing(
    tmp_path, source, function, message
):
    (tmp_path / "near.py").write_text("def f(x): return x\n")
    (tmp_path / "s.py").write_text(source)
    with pytest.raises(ProblemError, match=message):
        scaffold(tmp_path / "s.py", function, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_neighbour_that_the_function_does_not_need_is_no_matter(tmp_path):
    (tmp_path / "near.py").write_text("")
    (tmp_path / "s.py").write_text("import near, math\ndef g(x): return x * math.pi\n")
    scaffold(tmp_path / "s.py", "g", tmp_path / "new")
    assert "near" not in (tmp_path / "new" / "reference.py").read_text()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ProblemError, match=r"none\.py: no such file"):
        scaffold(tmp_path / "none.py", "g", tmp_path / "new")


names = st.lists(st.from_regex(r"v[a-z]{1,5}", fullmatch=True), min_size=1, max_size=7, unique=True)
defaults = st.sampled_from(
    ["1", "-2.5", "True", "None", "(1, 2)", "'a\"\\n'", "float('inf')", "1e999", "E", "1j", "10**3"]
)
annotations = st.sampled_from(
    ["", ": float", ": 'int'", ": bool", ": torch.Tensor", ": str | None"]
)


@st.composite
def parameters(draw):
    """Any legal parameter list: some positional only, some by keyword only, any defaults."""
    labels = draw(names)
    ends = sorted(draw(st.lists(st.integers(0, len(labels)), min_size=3, max_size=3)))
    written = []
    for at, label in enumerate(labels):
        optional = at >= ends[1] if at < ends[2] else draw(st.booleans())
        default = f" = {draw(defaults)}" if optional else ""
        written.append(label + draw(annotations) + default)
    if ends[2] < len(labels):
        written.insert(ends[2], "*")
    if ends[0]:
        written.insert(ends[0], "/")
    return ", ".join(written)


@given(parameters())
def test_any_signature_gives_a_problem_that_loads_or_a_reason(signature):
    with TemporaryDirectory() as folder:
        path, new = Path(folder) / "s.py", Path(folder) / "new"
        path.write_text(f"E = object()\ndef g({signature}):\n    return E\n")
        try:
            text = scaffold(path, "g", new)
        except ProblemError as error:
            assert "no parameter that kopt could pass" in str(error)
            return
        inputs = tomllib.loads(text)["inputs"]
        assert [spec.name for spec in load(new).inputs] == list(inputs)
