"""kopt's own suites: every file is a problem, and its sizes are the published ones."""

from __future__ import annotations

from importlib import resources

import pytest

from kopt.suites.own import OWN, own_suite

TABLE4 = [
    "matmul-2048x2048x2048", "matmul-4096x4096x4096", "matmul-8192x8192x8192",
    "softmax-4096x4096", "softmax-8192x8192", "layernorm-4096x5120", "layernorm-8192x4096",
    "rmsnorm-4096x4096", "rmsnorm-8192x4096", "rmsnorm-8192x8192", "cross_entropy-4096x32000",
    "cross_entropy-8192x32000", "reduce-8192x8192", "reduce-16384x4096",
    "rotary-2x32x2048x128", "rotary-2x32x4096x128",
]  # fmt: skip
SHOWCASE = ["matrix_vector", "rms_norm", "max_pool_3d", "transposed_conv_3d", "depthwise_conv_2d"]


@pytest.mark.parametrize(("name", "problems"), [("table4", TABLE4), ("showcase", SHOWCASE)])
def test_the_problems_in_their_order(name: str, problems: list[str]) -> None:
    suite = own_suite(name)
    assert [each.name for each in suite.problems] == problems
    assert [each.id for each in suite.problems] == [str(n + 1) for n in range(len(problems))]
    loaded = [each.load() for each in suite.problems]
    assert len({problem.id for problem in loaded}) == len(problems)
    for each, problem in zip(suite.problems, loaded, strict=True):
        assert problem.name == each.name
        assert len(problem.workloads) == 1
        assert not problem.reference.filename.endswith(".txt")


@pytest.mark.parametrize("name", list(OWN))
def test_floating_inputs_are_in_the_suites_dtype(name: str) -> None:
    suite = own_suite(name)
    for problem in (each.load() for each in suite.problems):
        dtypes = {spec.dtype for spec in problem.inputs if not spec.dtype.startswith("int")}
        assert dtypes == {suite.dtype}, problem.name


@pytest.mark.parametrize("name", list(OWN))
def test_every_file_is_in_a_suite(name: str) -> None:
    files = {each.name for each in (resources.files("kopt.suites") / "problems" / name).iterdir()}
    assert files == {f"{file}.py.txt" for file in OWN[name][1]}


def test_labels_are_classes() -> None:
    problems = [each.load() for each in own_suite("table4").problems]
    for problem in problems:
        for spec in problem.inputs:
            if spec.dtype == "int64":
                assert spec.high == problem.workloads[0].sizes["classes"]
