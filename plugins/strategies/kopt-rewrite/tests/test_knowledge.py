"""Texts for prompts: found by bottleneck and feature, in folders that anybody can add to."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from kopt.errors import PluginError
from kopt.model.diagnosis import Diagnosis, Finding
from kopt.model.problem import OperatorCall, Signature
from kopt.testing import problems, records
from kopt_rewrite import Rewrite
from kopt_rewrite.knowledge import Query, bottlenecks_of, features_of, load, read_text, retrieve

OWN = load(())


def names(query: Query, most: int = 3) -> list[str]:
    return [text.name for text in retrieve(OWN, query, most)]


def test_every_rule_of_the_roofline_judge_has_a_text():
    rules = pytest.importorskip("kopt_roofline")
    book = tomllib.loads((resources.files(rules) / "rules.toml").read_text(encoding="utf-8"))
    known = {name for text in OWN for name in text.bottlenecks}
    assert {rule["name"] for rule in book["rule"]} <= known


def test_bottlenecks_count_more_than_features_and_guides():
    query = Query("triton", records.gpu(), ["grid-starvation", "dram-bound"], ["reduction"])
    assert names(query)[0] == "grid-starvation"
    assert names(query, 4) == ["grid-starvation", "dram-bound", "guide-triton", "guide-hopper"]


def test_the_first_bottleneck_counts_most():
    query = Query("cuda", records.gpu(), ["spills", "atomics", "uncoalesced"])
    assert names(query) == ["spills", "atomics", "guide-cuda"]


def test_texts_for_other_languages_and_devices_are_left_out():
    found = names(Query("cpp", records.cpu(), ["grid-starvation", "cpu-underused"]), 99)
    assert "cpu-underused" in found
    assert not {"grid-starvation", "guide-cuda", "guide-triton", "guide-hopper"} & set(found)


def test_features_come_from_the_operators():
    def of(*operators: str) -> list[str]:
        first = problems.row_sum_signature().first
        calls = tuple(OperatorCall(name=name) for name in operators)
        return features_of(Signature(workloads={"a": first.model_copy(update={"trace": calls})}))

    assert of("aten.sum.dim_IntList") == ["reduction"]
    assert of("aten.addmm.default", "aten.relu.default") == ["product", "elementwise"]
    assert of("aten._softmax.default") == ["softmax"]
    assert of("aten.convolution.default") == ["convolution"]
    assert of("aten.cumsum.default") == ["scan"]
    assert "normalisation" in of("aten.native_layer_norm.default")


def test_bottlenecks_are_taken_in_their_order():
    findings = (Finding(bottleneck="a"), Finding(bottleneck="b"))
    one = Diagnosis(judge="x", bottleneck="a", findings=findings)
    assert bottlenecks_of([one, Diagnosis(judge="y", bottleneck="c")]) == ["a", "b", "c"]


def test_a_folder_of_the_user_comes_first(tmp_path: Path):
    (tmp_path / "spills.md").write_text(
        '+++\ntitle = "Ours"\nbottlenecks = ["spills"]\n+++\nDo this.'
    )
    [found] = retrieve(load([tmp_path]), Query("cuda", records.gpu(), ["spills"]), 1)
    assert (found.title, found.body) == ("Ours", "Do this.")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("no front matter", "begin it with"), ("+++\ntitle = 3\n+++\nx", "no title"),
        ('+++\ntitle = "x"\nfeature = []\n+++\nx', "unknown keys feature"),
        ('+++\ntitle = "x"\nfeatures = "a"\n+++\nx', "list of strings"),
        ("+++\ntitle = \n+++\nx", "begin it with"),
    ],
)  # fmt: skip
def test_a_broken_text_is_told(tmp_path: Path, content: str, said: str):
    path = tmp_path / "x.md"
    path.write_text(content)
    with pytest.raises(PluginError, match=said):
        read_text(path)
    [row] = Rewrite(Rewrite.Options(knowledge=(tmp_path,))).kopt_check()
    assert row.state == "fail"
    assert row.fix


def test_a_folder_that_is_not_there_is_told(tmp_path: Path):
    with pytest.raises(PluginError, match="does not exist"):
        load([tmp_path / "nowhere"])


SCRIPT = """\
import sys
from kopt_rewrite.knowledge import load
print([t.title for t in load(()) if t.name == "acme"], "acme_texts" in sys.modules)
"""


def test_a_distribution_adds_a_folder_without_being_imported(tmp_path: Path):
    folder = tmp_path / "acme_texts" / "texts"
    folder.mkdir(parents=True)
    (tmp_path / "acme_texts" / "__init__.py").write_text("raise SystemExit('imported')")
    (folder / "acme.md").write_text('+++\ntitle = "From Acme"\n+++\nx')
    info = tmp_path / "acme_texts-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-texts\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kopt.knowledge]\nacme = acme_texts:texts\n")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={"PYTHONPATH": str(tmp_path)}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "['From Acme'] False", done.stderr


def test_importing_the_plugins_brings_in_no_template_engine():
    code = "import kopt_rewrite, sys; print([m for m in ('jinja2', 'torch', 'openai') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
