"""A reference that searches in what its problem sorts: kernels that search in another way are right."""

from __future__ import annotations

import pytest

from kopt.model.kernel_file import parse_kernel
from kopt.model.problem import Problem, ReferenceSource
from kopt.model.verification import Status
from kopt_verify import Verify

SEARCH = Problem(
    name="search", format="kernelbench",
    reference=ReferenceSource(
        kind="kernelbench", entry="Model",
        source=(
            "import torch\n\nclass Model(torch.nn.Module):\n"
            "    def forward(self, edges, x):\n"
            "        return torch.searchsorted(edges, x).float()\n\n"
            "def get_inputs():\n"
            "    return [torch.rand(100).sort().values, torch.rand(64, 50)]\n\n"
            "def get_init_inputs():\n    return []\n"
        ),
    ),
)  # fmt: skip
COUNTS = """\
// /// kopt
// entry = "below"
// arguments = ["edges", "x", "out", "edges.shape[0]", "x.shape[0]", "x.shape[1]"]
// ///
#include <cstdint>
extern "C" void below(const float* edges, const float* x, float* out, int64_t count,
                      int64_t rows, int64_t cols) {
    for (int64_t i = 0; i < rows * cols; ++i) {
        int64_t found = 0;
        for (int64_t e = 0; e < count; ++e) found += edges[e] < x[i];
        out[i] = (float)found;
    }
}
"""
KERNELS = {
    COUNTS: Status.CORRECT,
    COUNTS.replace("e < count", "e + 1 < count"): Status.WRONG,
}


@pytest.mark.parametrize("source", KERNELS)
def test_how_many_boundaries_lie_below(open_trials, source):
    trial = open_trials(SEARCH).of(parse_kernel(source, "cpp"), depth="winner")
    found = Verify(Verify.Options()).kopt_verify(trial)
    assert found.status is KERNELS[source], [s for s in found.stages if s.outcome == "fail"]
