"""Stage origin: whose compute a candidate used, and whether that is what it declares."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kopt.model.values import DictValue, ListValue, TensorRef
from kopt.model.verification import StageResult, Status
from kopt_verify.stages import StageFailedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kopt.model.origin import KernelUse, Origin
    from kopt.model.reference import InputSet
    from kopt.model.trial import Trial
    from kopt.model.values import CallSpec, Value
    from kopt_verify.beyond import Beyond

MOST = 0.05
"""The share of a call's elements, or of its device time, that others may account for."""
_COMPILED = "Torch-Compiled Region"
_VENDOR = re.compile(
    r"cublas|cutlass|cudnn|xmma|nvjet|at::native|at::cuda|at_cuda_detail|cub::|"
    r"\b(ampere|turing|volta|hopper|sm\d\d)_\w*(gemm|conv)|gemv|splitk?reduce|"
    r"^triton_(poi|red|per|tem|mm|bmm)_",
    re.IGNORECASE,
)
_MOVING = re.compile(r"memcpy|memset|FillFunctor|copy_?kernel|CatArray|arange", re.IGNORECASE)
_SHOWN = 5
_NAME = 80


def check_origin(trial: Trial, inputs: InputSet, beyond: Beyond) -> StageResult:
    """Have the candidate run once under observation, and judge what was seen.

    On a GPU that is done in another process: a tracer stays in the one that it was used in.
    Raises StageFailedError, as delegated; CandidateError passes through.
    """
    language = trial.candidate.language
    if language == "torch":
        evidence = "declared as language torch: framework code, whatever it calls"
        return StageResult(stage="origin", outcome="pass", evidence=evidence)
    if trial.reference.device.kind == "cuda":
        twin = beyond.twin(sound=True)
        origin = twin.origin(inputs)
        twin.release(inputs)
    else:
        origin = trial.origin(inputs)
    if trial.problem.mutates:
        inputs.restore()
    if origin is None:
        evidence = f"the backend {trial.build.backend!r} does not say what a call used"
        return StageResult(stage="origin", outcome="not run", evidence=evidence)
    found, notes = judged(origin, elements_of(inputs.call))
    if found:
        raise StageFailedError(
            "origin", Status.DELEGATED,
            f"it is declared as {language} but {'; '.join(found)}. Do the work in the kernel, or "
            'declare language = "torch"',
        )  # fmt: skip
    own = "no compute of the framework or of a vendor's library was seen"
    evidence = "; ".join(notes) or own
    if origin.kernels:
        evidence += f"; on the device ran {_listed(kernel.name for kernel in origin.kernels)}"
    return StageResult(stage="origin", outcome="pass", evidence=evidence)


def judged(origin: Origin, elements: int) -> tuple[list[str], list[str]]:
    """Return what counts as delegation, and what is merely worth a note."""
    found: list[str] = []
    notes: list[str] = []
    compute = [use for use in origin.operators if not use.moves_only]
    if compute:
        share = sum(use.elements for use in compute) / max(elements, 1)
        compiled = any(use.name == _COMPILED for use in compute)
        said = (
            f"the framework computed {_listed(use.name for use in compute)} "
            f"on {share:.1%} of the call's elements"
        )
        (found if compiled or share > MOST else notes).append(said)
    if moves := [use.name for use in origin.operators if use.moves_only]:
        notes.append(f"the framework moved data: {_listed(moves)}")
    _judge_kernels(origin.kernels, found, notes)
    if origin.symbols:
        found.append(f"its library asks for {_listed(origin.symbols)}")
    return found, notes


def _judge_kernels(kernels: tuple[KernelUse, ...], found: list[str], notes: list[str]) -> None:
    total = sum(kernel.device_ms for kernel in kernels)
    foreign = [k for k in kernels if _VENDOR.search(k.name) and not _MOVING.search(k.name)]
    if not foreign:
        return
    share = sum(kernel.device_ms for kernel in foreign) / total if total else 1.0
    said = f"{_listed(k.name for k in foreign)} took {share:.1%} of the device time"
    (found if share > MOST else notes).append(said)


def _listed(names: Iterable[str]) -> str:
    shown = [name if len(name) <= _NAME else f"{name[:_NAME]}..." for name in names]
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(shown[:_SHOWN]) + more


def elements_of(call: CallSpec) -> int:
    """Return how many elements the arguments, the state and the outputs of a call have."""
    values: list[Value] = [item.value for item in call.arguments]
    return _elements([*values, *call.state.values(), *call.outputs])


def _elements(values: Iterable[Value]) -> int:
    total = 0
    for value in values:
        match value:
            case TensorRef():
                count = 1
                for length in value.shape:
                    count *= length
                total += count
            case ListValue():
                total += _elements(value.items)
            case DictValue():
                total += _elements(value.items.values())
    return total
