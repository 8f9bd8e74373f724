"""Stage shapes: other extents and layouts than the problem's; only a silent fault is one.

A kernel may be made for one shape. But on another one it has to be right or to refuse, since who
uses it will not read its source first.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kopt.model.reference import Change, Layout
from kopt.model.verification import StageResult
from kopt_verify.beyond import (
    Look,
    best_distribution,
    changeable,
    elements,
    elements_at,
    fewer_first,
    most_elements,
    resizings,
    room_for_primes,
    small_extents,
)
from kopt_verify.stages import StageFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kopt.model.trial import Trial
    from kopt_verify.beyond import Beyond

_STAGE = "shapes"
_SECONDS = 10.0
"""After which no other look is begun: an interpreted kernel may take long for each."""
_MOST_EXTENTS = 4
_LAYOUTS: tuple[Layout, ...] = ("transposed", "spaced", "misaligned")


def check_shapes(
    trial: Trial,
    beyond: Beyond,
    *,
    refuse_layouts: bool,
    clock: Callable[[], float] = time.monotonic,
) -> StageResult:
    """Look at a candidate on other extents and layouts, in a process of its own.

    ``refuse_layouts``: whether being silently wrong on a layout fails too; else it is only said.
    Raises StageFailedError for a silent fault.
    """
    looks: list[Look] = []
    left = 0
    end = clock() - trial.waited + _SECONDS
    for change in changes(trial, beyond.workload):
        if clock() - trial.waited > end:
            left += 1
            continue
        look = beyond.look(change, trial.seed)
        if look is None:
            continue
        looks.append(look)
        if change.layout == "contiguous" or refuse_layouts:
            _refuse_silence(look)
    for look in beyond.asked_again(trial.seed):
        _refuse_silence(look)
    if not looks:
        return StageResult(
            stage=_STAGE, outcome="not run", evidence="the reference takes no other shapes"
        )
    return StageResult(stage=_STAGE, outcome="pass", evidence=_summary(looks, left))


def _refuse_silence(look: Look) -> None:
    if look.kind == "wrong":
        raise StageFailedError(
            _STAGE, look.status,
            f"specialised, and silently wrong on {look.change}: {look.said}; have it raise an "
            "error for what it is not made for",
        )  # fmt: skip


def changes(trial: Trial, workload: str) -> Iterator[Change]:
    """Yield the changes to look at: other extents, then layouts (at small extents if need be)."""
    reference = trial.reference
    distribution = best_distribution(reference)
    extents = dict(list(changeable(reference, workload).items())[:_MOST_EXTENTS])
    signature = reference.signature.workloads[workload]
    total = elements(reference, workload)
    enough = most_elements(reference, workload)
    most = room_for_primes(signature, extents, enough=enough, total=total)
    room = enough / max(total, 1)
    if extents:
        seen: list[dict[str, int]] = []

        def fits(changed: dict[str, int]) -> bool:
            return elements_at(signature, extents, changed) <= most

        fewer = fewer_first(reference, workload)
        odd = {name: few - 1 + few % 2 for name, few in fewer.items()}
        for wanted in (fewer, odd, *resizings(extents, room=room, fits=fits)):
            changed = {n: e for n, e in wanted.items() if e != extents[n]}
            if changed and changed not in seen:
                seen.append(changed)
                yield Change(_named(changed), changed, distribution=distribution)
    small = small_extents(reference, workload)
    if room < 1.0 and not small:
        return
    for layout in _LAYOUTS:
        yield Change(f"{layout} arguments", small, layout=layout, distribution=distribution)


def _named(extents: dict[str, int]) -> str:
    return ", ".join(f"{name}={extent}" for name, extent in extents.items())


def _summary(looks: list[Look], left: int) -> str:
    shapes = [look for look in looks if not look.change.endswith(" arguments")]
    layouts = [look for look in looks if look not in shapes]
    parts = []
    if shapes:
        refused = [look for look in shapes if look.kind == "refused"]
        if not refused:
            parts.append(f"general: right on {len(shapes)} other shapes")
        elif len(refused) == len(shapes):
            parts.append(f"specialised: refuses other shapes ({refused[0].said})")
        else:
            parts.append(
                f"partly specialised: right on {len(shapes) - len(refused)} of {len(shapes)} other "
                f"shapes, refuses {refused[0].change} ({refused[0].said})"
            )
    words = {"right": "right on", "refused": "refuses", "wrong": "SILENTLY WRONG on"}
    for kind, said in words.items():
        if names := [look.change for look in layouts if look.kind == kind]:
            parts.append(f"{said} {', '.join(names)}")
    if left:
        parts.append(f"{left} looks left out for lack of time")
    return "; ".join(parts)
