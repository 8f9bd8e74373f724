"""KernelBench's own protocol on a known-wrong result: its seeds, its inputs, its tolerance."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch.func import functional_call

from kopt.errors import ProblemError
from kopt_verify.mutations import Case, Results, mutations_of

TOLERANCES = {torch.float32: 1e-4, torch.float16: 1e-2}
TRIALS = 5
_SEED = 42


class Protocol:
    """A problem as KernelBench's evaluation runs it: in training mode, without gradients."""

    def __init__(self, source: str, device: str, dtype: torch.dtype) -> None:
        self._space: dict[str, Any] = {"__name__": "kernelbench_problem"}
        exec(compile(source, "problem", "exec"), self._space)
        self._device, self._dtype = device, dtype
        torch.manual_seed(_SEED)
        init = self._space["get_init_inputs"]()
        torch.manual_seed(_SEED)
        self._model = self._space["Model"](*init).to(device=device, dtype=dtype)
        names = list(inspect.signature(self._model.forward).parameters)
        self._arguments = names
        self._state = dict(self._model.state_dict())

    def accepted(self) -> dict[str, bool]:
        """Return whether each known-wrong result passes every trial; ``right`` is a second run."""
        torch.manual_seed(_SEED)
        seeds = [int(torch.randint(0, 2**32 - 1, (1,)).item()) for _ in range(TRIALS)]
        passed: dict[str, bool] = {}
        before = self._results(self._inputs(seeds[-1]), {}, {})
        for seed in seeds:
            inputs = self._inputs(seed)
            case = self._case(inputs, before)
            before = case.expected
            wrong = {"right": lambda case: case.run({}, {}), **mutations_of(case)}
            for name, mutate in wrong.items():
                results = mutate(case) if passed.get(name, True) else None
                if results is not None:
                    passed[name] = self._close(case.expected, results)
        return passed

    def _inputs(self, seed: int) -> list[Any]:
        torch.manual_seed(seed)
        return [
            value.to(device=self._device, dtype=self._dtype)
            if isinstance(value, torch.Tensor) else value
            for value in self._space["get_inputs"]()
        ]  # fmt: skip

    def _case(self, inputs: list[Any], other: Results) -> Case:
        named = dict(zip(self._arguments, inputs, strict=False))
        tensors = {n: v for n, v in named.items() if isinstance(v, torch.Tensor)}

        def run(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> Results:
            return self._results([{**named, **arguments}[n] for n in named], arguments, state)

        return Case(
            tensors={**tensors, **self._state},
            kinds=dict.fromkeys(tensors, "tensor") | dict.fromkeys(self._state, "state"),
            run=run, exact=run, expected=self._results(inputs, {}, {}), other=other,
        )  # fmt: skip

    def _results(
        self, inputs: list[Any], arguments: Mapping[str, Any], state: Mapping[str, Any]
    ) -> Results:
        copied = {n: v.clone() for n, v in {**self._state, **state}.items()}
        with torch.no_grad():
            try:
                result = functional_call(self._model, copied, tuple(copy.copy(inputs)))
            except Exception as error:
                raise ProblemError(f"{type(error).__name__}: {error}") from error
        if not isinstance(result, torch.Tensor):
            raise ProblemError("it returns no single tensor, which KernelBench cannot compare")
        return [result]

    def _close(self, expected: Results, results: Results) -> bool:
        tolerance = TOLERANCES[self._dtype]
        return all(
            right.shape == wrong.shape
            and torch.allclose(right, wrong, atol=tolerance, rtol=tolerance)
            for right, wrong in zip(expected, results, strict=True)
        )
