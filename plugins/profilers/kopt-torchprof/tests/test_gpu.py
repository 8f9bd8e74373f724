"""On a GPU: a real trace, and what is said of it."""

from __future__ import annotations

import pytest

from kopt.model.evaluation import Build
from kopt_torchprof.plugin import profile_of

torch = pytest.importorskip("torch")
executables = pytest.importorskip("kopt_torch.executable")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Call:
    """A bound call of PyTorch's own operators."""

    def __init__(self):
        self.x = torch.randn(1 << 22, device="cuda")

    def launch(self):
        torch.relu(self.x).add(1.0)


def test_eager_operators_are_kernels_of_one_call():
    build = Build(backend="torch", binary_id="x", seconds=0.0)
    call = Call()
    timeline = executables.PythonExecutable(build, lambda: None, {}).timeline(call, 10)
    profile = profile_of("x", timeline)
    assert profile.notes == ()
    assert len(profile.kernels) == 2
    metrics = {metric.name: metric.value for metric in profile.metrics}
    assert metrics["kernel_launches"] == 2
    assert metrics["span_us"] > 0
    each = [{m.name: m.value for m in kernel.metrics} for kernel in profile.kernels]
    assert sum(kernel["share_percent"] for kernel in each) == pytest.approx(100.0)
    assert all(kernel["duration_us"] > 0 for kernel in each)
    assert all(kernel["grid_blocks"] * kernel["block_threads"] <= call.x.numel() for kernel in each)
    assert all("at::native::" in kernel.name for kernel in profile.kernels)
