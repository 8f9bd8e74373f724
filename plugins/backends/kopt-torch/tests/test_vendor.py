"""cuDNN's switches as baselines: the same results in the same form, and nothing left switched on."""

from __future__ import annotations

import pytest
import torch

from kopt.formats.pickled import problem_from_function
from kopt.model.problem import InputSpec
from kopt_torch import TorchBackend
from kopt_torch.modules import ModuleCopies
from kopt_torch.vendor import convolves, switched


class Model(torch.nn.Module):
    def __init__(self, channels=4):
        super().__init__()
        self.first = torch.nn.Conv2d(3, channels, 3, padding=1)
        self.scale = torch.nn.Parameter(torch.ones(channels, 1, 1))

    def forward(self, x):
        assert torch.backends.cudnn.benchmark
        self.seen = x.is_contiguous(memory_format=torch.channels_last)
        return self.first(x) * self.scale, x.shape[0]


def plain(x, weight):
    return torch.nn.functional.conv3d(x, weight)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("kind", ["class", "module"])
def test_a_module_gives_what_it_gave(kind, channels_last):
    torch.manual_seed(0)
    x, model = torch.randn(2, 3, 8, 8), Model()
    with torch.no_grad():
        wanted = model.first(x) * model.scale
    entry = Model if kind == "class" else ModuleCopies(model)
    made = switched(entry, channels_last=channels_last)()
    made.load_state_dict(model.state_dict())
    with torch.no_grad():
        found, batch = made(x)
    assert torch.allclose(found, wanted, atol=1e-5)
    assert (found.is_contiguous(), batch, made.seen) == (True, 2, channels_last)
    weight = made.first.weight
    assert weight.is_contiguous(memory_format=torch.channels_last) is channels_last
    assert torch.backends.cudnn.benchmark is False


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_function_gives_what_it_gave(channels_last):
    x, weight = torch.randn(2, 3, 6, 6, 6), torch.randn(5, 3, 2, 2, 2)
    found = switched(plain, channels_last=channels_last)(x, weight)
    assert torch.allclose(found, plain(x, weight), atol=1e-5)
    assert found.is_contiguous()


def test_the_switch_is_off_again_after_an_exception():
    with pytest.raises(RuntimeError):
        switched(plain, channels_last=False)(torch.ones(1), torch.ones(1))
    assert torch.backends.cudnn.benchmark is False


def test_only_references_that_convolve_have_these_baselines(problem):
    def names(given, device="cuda", **options):
        backend = TorchBackend(TorchBackend.Options(compile=False, **options))
        return [candidate.idea for candidate in backend.kopt_baselines(given, device)]

    spec = InputSpec(name="x", shape=(2, 3, 8, 8))
    softmax = problem("import torch\n\ndef f(x):\n    return torch.softmax(x, -1)", spec)
    conv = problem("import torch\n\ndef f(x):\n    return torch.conv2d(x, x)", spec)
    pickled = problem_from_function(torch.nn.Conv2d(3, 4, 3), [torch.randn(2, 3, 8, 8)], name="c")
    assert [convolves(each) for each in (softmax, conv, pickled)] == [False, True, True]
    assert names(softmax) == ["eager"]
    assert names(conv) == ["eager", "vendor", "vendor-channels-last"]
    assert names(conv, vendor=False) == names(conv, "cpu")[:1] == ["eager"]
