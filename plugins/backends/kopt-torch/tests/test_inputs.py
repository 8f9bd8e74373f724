"""The judge's memory: what was drawn is noticed when it changes, and can be put back."""

from __future__ import annotations

import pytest
import torch

from kopt.model.problem import InputSpec, Problem, ReferenceSource, Workload
from kopt.model.reference import Change
from kopt.testing.problems import function_problem
from kopt.worker.segments import span_bytes
from kopt_torch.reference import TorchReference


def spec(name="x", *shape, **more):
    return InputSpec(name=name, shape=shape or (6, 10), **more)


@pytest.fixture
def inputs(opened):
    reference = opened("def f(x, y):\n    return x + y, x > y", spec("x"), spec("y"))
    found = reference.inputs("default", 3)
    yield found
    found.close()


def test_nothing_has_changed_at_first(inputs):
    assert inputs.changed() == []
    assert inputs.canaries_hurt() == []


@pytest.mark.parametrize("index", [(0, 0), (5, 9), (3, 2)])
def test_a_changed_element_is_noticed_and_put_back(inputs, index):
    before = inputs.tensors["x"].clone()
    inputs.tensors["x"][index] = -inputs.tensors["x"][index]
    assert inputs.changed() == ["x"]
    inputs.restore()
    assert inputs.changed() == []
    assert torch.equal(inputs.tensors["x"], before)


def test_sorting_and_zeroing_are_noticed(inputs):
    inputs.tensors["x"].copy_(inputs.tensors["x"].sort(0).values)
    inputs.tensors["y"].zero_()
    assert inputs.changed() == ["x", "y"]


@pytest.mark.parametrize("name", ["x", "y", "out0", "out1"])
@pytest.mark.parametrize("place", ["just before", "just after", "first", "last"])
def test_a_byte_beside_a_tensor_is_noticed_and_put_back(inputs, name, place):
    refs = {a.name: a.value for a in inputs.call.arguments}
    refs |= {f"out{i}": ref for i, ref in enumerate(inputs.call.outputs)}
    segment = next(s for s in inputs.segments if s.id == refs[name].segment)
    at = {
        "just before": refs[name].offset - 1,
        "just after": refs[name].offset + span_bytes(refs[name]),
        "first": 0,
        "last": segment.nbytes - 1,
    }[place]
    segment.map[at : at + 1] = b"\x00"
    assert inputs.canaries_hurt() == [name]
    assert inputs.changed() == []
    inputs.restore()
    assert inputs.canaries_hurt() == []


def test_poison_fills_the_outputs_alone(inputs):
    inputs.poison(0xFF)
    assert bool(inputs.outputs[0].isnan().all())
    inputs.poison(0x37)
    first = inputs.outputs[0].view(torch.uint8)
    assert bool((first == 0x37).all())
    assert bool(torch.isfinite(inputs.outputs[0]).all())
    assert inputs.changed() == []
    assert inputs.canaries_hurt() == []


def test_two_sets_share_nothing(opened):
    reference = opened("def f(x):\n    return x * 2")
    first, second = reference.inputs("default", 1), reference.inputs("default", 1)
    first.tensors["x"].zero_()
    assert second.changed() == []
    assert not {s.id for s in first.segments} & {s.id for s in second.segments}


def test_lists_and_flags_of_a_model_are_carried(opened):
    source = (
        "import torch\nclass Model(torch.nn.Module):\n"
        "    def forward(self, parts, flag):\n        return torch.cat(parts) if flag else parts[0]\n"
        "def get_inputs():\n    return [[torch.rand(3, 4), torch.rand(2, 4)], True]\n"
        "def get_init_inputs():\n    return []\n"
    )
    reference = opened(
        Problem(
            name="parts", format="kernelbench",
            reference=ReferenceSource(kind="kernelbench", source=source, entry="Model"),
        )
    )  # fmt: skip
    inputs = reference.inputs("default", 1)
    assert sorted(inputs.tensors) == ["parts[0]", "parts[1]"]
    inputs.tensors["parts[1]"].zero_()
    assert inputs.changed() == ["parts[1]"]
    inputs.restore()
    assert inputs.changed() == []
    assert torch.equal(
        reference.expected(inputs)[0],
        torch.cat([inputs.tensors["parts[0]"], inputs.tensors["parts[1]"]]),
    )


def test_closing_gives_the_descriptors_back(opened):
    inputs = opened("def f(x):\n    return x * 2").inputs("default", 1)
    segments = inputs.segments
    assert all(segment.fd >= 0 for segment in segments)
    inputs.close()
    assert all(segment.fd == -1 for segment in segments)


def test_other_content_comes_to_the_same_addresses(inputs):
    before = inputs.tensors["x"].clone()
    address = inputs.tensors["x"].data_ptr()
    inputs.redraw(4)
    assert inputs.tensors["x"].data_ptr() == address
    assert not torch.equal(inputs.tensors["x"], before)
    assert inputs.changed() == []
    inputs.redraw(3)
    assert torch.equal(inputs.tensors["x"], before)


def test_one_element_within_an_input_changes_and_comes_back(opened):
    reference = opened("def f(x):\n    return x + 1", spec("x", 20, 30))
    inputs = reference.inputs("default", 3)
    before = inputs.tensors["x"].clone()
    assert inputs.perturb(7)
    changed = (inputs.tensors["x"] != before).flatten().nonzero().flatten().tolist()
    assert len(changed) == 1 and 64 <= changed[0] < 600 - 64
    assert inputs.tensors["x"].flatten()[changed[0]] in before
    assert inputs.changed() == []
    inputs.restore()
    assert torch.equal(inputs.tensors["x"], before)
    assert inputs.changed() == []
    inputs.close()


def test_what_one_element_would_break_is_left_alone(opened):
    symmetric = opened("def f(x):\n    return x + 1", spec("x", 40, 40, distribution="ones"))
    batched = opened("def f(x):\n    return x + 1", spec("x", 3, 40, 40, distribution="ones"))
    small = opened("def f(x):\n    return x + 1", spec("x", 6, 10))
    for reference in (symmetric, batched, small):
        inputs = reference.inputs("default", 3)
        assert not inputs.perturb(7)
        inputs.close()


def test_module_state_is_not_changed_alone(opened, model):
    """A candidate's module has copied it when it was bound, and need not look again."""
    inputs = opened(model).inputs("default", 3)
    before = {name: tensor.clone() for name, tensor in inputs.tensors.items()}
    assert any(tensor.numel() >= 256 for tensor in inputs.state.values())
    for seed in range(12):
        assert inputs.perturb(seed)
    changed = {n for n, tensor in inputs.tensors.items() if not torch.equal(tensor, before[n])}
    assert changed == {"x"}
    inputs.close()


@pytest.mark.parametrize("shape", [(40, 40), (3, 40, 40)])
def test_symmetric_matrices_stay_so(opened, shape):
    inputs = opened("def f(x):\n    return x + 1", spec("x", *shape)).inputs("default", 3)
    matrix = inputs.tensors["x"]
    assert inputs.perturb(7)
    matrix.copy_(matrix + matrix.mT.clone())
    assert not inputs.perturb(7)
    inputs.close()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    "write",
    [
        lambda inputs: inputs.poison(0xFF),
        lambda inputs: inputs.restore(),
        lambda inputs: inputs.redraw(4),
        lambda inputs: inputs.perturb(5),
    ],
    ids=["poison", "restore", "redraw", "perturb"],
)
def test_what_is_written_is_there_on_return(write):
    """Another process reads this memory next; on a busy device what is queued may come after that."""
    problem = function_problem(
        "def double(x):\n    return x * 2\n", "double", (InputSpec(name="x", shape=(1 << 20,)),)
    )
    reference = TorchReference(problem, "cuda")
    inputs = reference.inputs("default", 3)
    torch.cuda._sleep(200_000_000)  # a tenth of a second
    write(inputs)
    assert torch.cuda.current_stream().query()
    inputs.close()


def test_labels_go_by_their_workloads_size():
    source = "def f(x, labels):\n    return x.gather(1, labels[:, None])\n"
    labels = InputSpec(
        name="labels", shape=("rows",), dtype="int64", distribution="integers", low=2.0,
        high="classes",
    )  # fmt: skip
    problem = function_problem(
        source, "f", (spec("x", "rows", "classes"), labels),
        workloads=tuple(
            Workload(name=str(n), sizes={"rows": 4000, "classes": n}) for n in (5, 300)
        ),
    )  # fmt: skip
    reference = TorchReference(problem, "cpu")
    for change, classes in ((None, 300), (Change("classes=9", {"classes": 9}), 9)):
        if change is None:
            found = reference.inputs("300", 3)
        else:
            found = reference.changed_inputs("300", 3, change)
        assert (int(found.tensors["labels"].min()), int(found.tensors["labels"].max())) == (
            2, classes - 1,
        )  # fmt: skip
        found.close()
    reference.close()
