"""What each harness let through and what it rejected wrongly, counted and as a table."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

from kopt.model.kernel_file import load_kernel
from kopt.selftest.cases import CASES, FIXTURES, Case

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rivals.jobs import Outcome

CPU_LANGUAGES = ("cpp", "torch")
KERNELS = FIXTURES / "kernels"


@dataclasses.dataclass(frozen=True)
class Line:
    """One harness's verdict on one case."""

    harness: str
    case: str
    kind: Literal["attack", "control"]
    outcome: Outcome
    detail: str = ""
    speedup: float | None = None
    """Over PyTorch, by the harness's own clock."""
    believed: bool = True
    """Whether the harness stands by its figure; only of weight for a case that is timed."""

    @property
    def bad(self) -> bool:
        """Whether an attack was let through, or an honest kernel was not accepted."""
        accepted = self.outcome == "accepted" and self.believed
        return accepted if self.kind == "attack" else not accepted


def cpu_cases() -> list[Case]:
    """Return the selftest's cases whose kernels run on a CPU."""
    cases = [case for case in CASES if case.device != "gpu"]
    return [case for case in cases if load_kernel(KERNELS / case.kernel).language in CPU_LANGUAGES]


def counted(lines: Iterable[Line]) -> dict[str, dict[str, Any]]:
    """Return by harness how many attacks it let through and honest kernels it rejected, and which."""
    board: dict[str, dict[str, Any]] = {}
    for line in lines:
        own = board.setdefault(
            line.harness,
            {"attacks": 0, "let_through": [], "controls": 0, "rejected": [], "does_not_apply": []},
        )
        if line.outcome == "does not apply":
            own["does_not_apply"].append(line.case)
            continue
        own[f"{line.kind}s"] += 1
        if line.bad:
            own["let_through" if line.kind == "attack" else "rejected"].append(line.case)
    return board


def table(board: dict[str, dict[str, Any]]) -> str:
    """Return the counts as a Markdown table."""
    rows = [
        f"| {name} | {len(own['let_through'])} of {own['attacks']} "
        f"| {len(own['rejected'])} of {own['controls']} | {len(own['does_not_apply'])} |"
        for name, own in board.items()
    ]
    head = "| judged by | attacks let through | honest kernels rejected | does not apply |"
    return "\n".join([head, "| --- | --- | --- | --- |", *rows])


def which(board: dict[str, dict[str, Any]]) -> str:
    """Return the names behind the counts, a paragraph by harness."""
    return "\n".join(
        f"{name}\n  let through: {', '.join(own['let_through']) or 'none'}\n"
        f"  rejected: {', '.join(own['rejected']) or 'none'}\n"
        f"  does not apply: {', '.join(own['does_not_apply']) or 'none'}"
        for name, own in board.items()
    )
