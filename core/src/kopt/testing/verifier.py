"""What a verifier has to do (needs pytest, kopt-torch, kopt-cpp and a C++ compiler)."""

from __future__ import annotations

from typing import ClassVar, Literal

import pytest

from kopt.model.kernel_file import parse_kernel
from kopt.model.problem import Problem
from kopt.model.verification import Status, Verification
from kopt.testing import problems
from kopt.testing.plugin import PluginContract
from kopt.testing.trials import Trials

_HEADER = """\
// /// kopt
// entry = "vector_add"
// arguments = ["x", "y", "out", "x.numel"]
// ///
#include <cstdint>
extern "C" void vector_add(float* x, float* y, float* out, int64_t n) {
"""


def cpp_add(body: str) -> str:
    """Return a C++ kernel for ``vector_add`` with this body; it has x, y, out and n."""
    return f"{_HEADER}{body}\n}}\n"


def torch_add(result: str) -> str:
    """Return a Python kernel for ``vector_add`` that returns this expression of x and y."""
    return f"import torch\n\n\ndef kernel_function(x, y):\n    return {result}\n"


_LOOP = "for (int64_t i = 0; i < n; ++i)"
HONEST = cpp_add(f"{_LOOP} out[i] = x[i] + y[i];")
WRONG: dict[str, tuple[str, str, Status]] = {
    "zeros": ("cpp", cpp_add(f"{_LOOP} out[i] = 0;"), Status.WRONG),
    "constant": ("cpp", cpp_add(f"{_LOOP} out[i] = 0.25f;"), Status.WRONG),
    "nothing at all": ("cpp", cpp_add(""), Status.INCOMPLETE_WRITE),
    "partial write": (
        "cpp", cpp_add("for (int64_t i = 0; i < n - 1; ++i) out[i] = x[i] + y[i];"),
        Status.INCOMPLETE_WRITE,
    ),
    "mutated input": (
        "cpp", cpp_add(f"{_LOOP} out[i] = x[i] + y[i];\n    x[0] += 1;"), Status.MUTATES_INPUT
    ),
    "wrong shape": ("torch", torch_add("(x + y)[None]"), Status.INVALID_OUTPUT),
    "wrong dtype": ("torch", torch_add("(x + y).double()"), Status.INVALID_OUTPUT),
    "wrong structure": ("torch", torch_add("(x + y, x)"), Status.INVALID_OUTPUT),
}  # fmt: skip
"""Kernels that compute nothing, too little or too much: language, source, and the status of each."""


class VerifierContract(PluginContract):
    """A verifier accepts an honest kernel and rejects wrong ones, each under its own status.

    :cvar rejects: which kinds of ``WRONG`` it is there to find, with the status it gives; a
        verifier of one stage names its own. Everything else it has to accept or leave alone.
    """

    role: ClassVar[str] = "verifier"
    rejects: ClassVar[dict[str, Status]] = {name: status for name, (_, _, status) in WRONG.items()}

    def problem(self) -> Problem:
        """Return the problem that the kernels are for."""
        return problems.vector_add(4096)

    _trials: ClassVar[Trials | None] = None

    @pytest.fixture
    def trials(self, tmp_path_factory: pytest.TempPathFactory) -> Trials:
        """A reference and a candidate process, the same for all tests of the class."""
        for needed in ("torch", "kopt_torch", "kopt_cpp"):
            pytest.importorskip(needed)
        cls = type(self)
        if cls._trials is None:
            cls._trials = Trials(self.problem(), tmp_path_factory.mktemp("builds"))
        return cls._trials

    @classmethod
    def teardown_class(cls) -> None:
        """Kill the process."""
        if cls._trials is not None:
            cls._trials.close()
            cls._trials = None

    def verdict(self, trials: Trials, source: str, language: str = "cpp") -> Verification | None:
        """Return a new instance's verdict; None where it has none."""
        verdicts = self.hooks().kopt_verify(trials.of(parse_kernel(source, language)))
        return verdicts[0] if verdicts else None

    @pytest.mark.parametrize("depth", ["search", "winner"])
    def test_an_honest_kernel_is_accepted(
        self, trials: Trials, depth: Literal["search", "winner"]
    ) -> None:
        """With every stage named that was passed."""
        trial = trials.of(parse_kernel(HONEST, "cpp"), depth=depth)
        (verdict,) = self.hooks().kopt_verify(trial)
        assert verdict.status is Status.CORRECT
        assert verdict.verifier
        assert any(stage.outcome == "pass" for stage in verdict.stages)

    def test_it_rejects_something(self) -> None:
        """A verifier that rejects nothing proves nothing."""
        assert self.rejects

    @pytest.mark.parametrize("kind", sorted(WRONG))
    def test_wrong_kernels_are_rejected(self, trials: Trials, kind: str) -> None:
        """By the status of their kind, with evidence in the stage that failed."""
        if kind not in self.rejects:
            pytest.skip("not what this verifier looks for")
        language, source, _ = WRONG[kind]
        verdict = self.verdict(trials, source, language)
        assert verdict is not None
        assert verdict.status is self.rejects[kind]
        (failed,) = [stage for stage in verdict.stages if stage.outcome == "fail"]
        assert failed.evidence

    def test_an_instance_forgets_what_was_wrong(self, trials: Trials) -> None:
        """Wrong kernels before it cost an honest one nothing, and honest ones excuse no wrong one."""
        hooks = self.hooks()
        kinds = sorted(self.rejects)
        for kind in kinds:
            language, source, _ = WRONG[kind]
            (wrong,) = hooks.kopt_verify(trials.of(parse_kernel(source, language)))
            (honest,) = hooks.kopt_verify(trials.of(parse_kernel(HONEST, "cpp")))
            assert (wrong.status, honest.status) == (self.rejects[kind], Status.CORRECT)
