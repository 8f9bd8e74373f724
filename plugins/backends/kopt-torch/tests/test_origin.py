"""What an observed call shows: every way to have PyTorch do the work, and what is none."""

from __future__ import annotations

import shutil
import threading

import pytest
import torch

from kopt.model.kernel_file import parse_kernel
from kopt.model.problem import InputSpec
from kopt_torch.origin import COMPILED, moves_only, observe

N = 32
X, Y = torch.randn(N, N), torch.randn(N, N)


def in_thread(step):
    def run():
        thread = threading.Thread(target=step)
        thread.start()
        thread.join()

    return run


def without_modes(step):
    def run():
        with torch.utils._python_dispatch._disable_current_modes():
            step()

    return run


def computed(step):
    return {use.name: use.elements for use in observe(step, "cpu").operators if not use.moves_only}


@pytest.mark.parametrize(
    ("step", "operator", "elements"),
    [
        (lambda: X @ Y, "aten::mm", 3 * N * N),
        (lambda: torch.ops.aten.mm(X, Y), "aten::mm", 3 * N * N),
        (lambda: getattr(torch, "mat" + "mul")(X, Y), "aten::mm", 3 * N * N),
        (lambda: torch.nn.functional.softmax(X, -1), "aten::_softmax", 2 * N * N),
        (lambda: [X + Y, X + Y], "aten::add", 6 * N * N),
        (lambda: torch._foreach_exp([X, Y]), "aten::_foreach_exp", 4 * N * N),
        # The mode is blind for these: what the profiler sees has no outputs, but a composite's name
        (in_thread(lambda: X @ Y), "aten::matmul", 3 * N * N),
        (in_thread(lambda: X.exp()), "aten::exp", N * N),
        (in_thread(lambda: torch._foreach_exp([X, Y])), "aten::_foreach_exp", 2 * N * N),
        (without_modes(lambda: X.exp()), "aten::exp", N * N),
    ],
)
def test_compute_is_seen_once_with_what_it_touches(step, operator, elements):
    found = computed(step)
    assert list(found) == [operator]
    assert elements * 2 / 3 <= found[operator] <= elements


@pytest.mark.parametrize(
    "step",
    [
        lambda: torch.empty_like(X),
        lambda: X.t().reshape(-1)[3:].unsqueeze(0).expand(4, -1),
        lambda: torch.zeros(N).copy_(X[0]).clone().contiguous(),
        lambda: torch.cat([X.half(), Y.half()]).float(),
        lambda: torch.full((N,), 2.0).fill_(3.0),
        in_thread(lambda: torch.stack([X, Y]).permute(2, 1, 0).contiguous()),
        lambda: None,
    ],
)
def test_allocating_viewing_and_copying_are_moves(step):
    assert computed(step) == {}


def test_moves_are_reported_as_moves():
    (used,) = observe(lambda: X.clone(), "cpu").operators
    assert (used.name, used.elements, used.moves_only) == ("aten::clone", 2 * N * N, True)


def test_the_inside_of_a_custom_operator_counts_and_its_shell_does_not():
    library = torch.library.Library("kopt_origin_test", "DEF")
    library.define("inner(Tensor x) -> Tensor")
    library.define("own(Tensor x) -> Tensor")
    library.impl("inner", lambda x: x @ x, "CPU")
    library.impl("own", lambda x: x.clone(), "CPU")
    found = computed(lambda: torch.ops.kopt_origin_test.inner(X))
    assert list(found) == ["aten::matmul"]
    assert 2 * N * N <= found["aten::matmul"] <= 3 * N * N
    assert computed(lambda: torch.ops.kopt_origin_test.own(X)) == {}


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_compiled_region_is_seen_in_this_thread_and_in_others():
    compiled = torch.compile(lambda x, y: torch.softmax(x, -1) + y)
    elsewhere = in_thread(lambda: compiled(X, Y))
    elsewhere()
    assert set(computed(elsewhere)) == {COMPILED}
    assert set(computed(lambda: compiled(X, Y))) == {"aten::_softmax", "aten::add"}


@pytest.mark.parametrize(
    ("name", "moves"),
    [("aten::copy_", True), ("aten::_to_copy", True), ("aten::mm", False), ("aten::sum", False),
     ("prims::clone", True), ("aten::_softmax", False)],
)  # fmt: skip
def test_names(name, moves):
    assert moves_only(name) is moves


def test_a_candidate_process_tells(trials, problem):
    given = problem(
        "def f(x):\n    return torch.softmax(x, -1)", InputSpec(name="x", shape=(8, 16))
    )
    made = trials(given)
    source = "import torch\n\ndef kernel_function(x):\n    return torch.softmax(x, -1)\n"
    trial = made.of(parse_kernel(source, "torch"))
    inputs = made.reference.inputs(given.workloads[0].name, 3, "native")
    try:
        (used,) = trial.origin(inputs).operators
        trial.release(inputs)
    finally:
        inputs.close()
    assert (used.name, used.elements, used.moves_only) == ("aten::_softmax", 256, False)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.gpu
def test_operators_on_the_device_are_seen():
    x = torch.randn(512, 512, device="cuda")
    (used,) = observe(lambda: torch.mm(x, x), "cuda").operators
    assert (used.name, used.elements, used.moves_only) == ("aten::mm", 3 * 512 * 512, False)
