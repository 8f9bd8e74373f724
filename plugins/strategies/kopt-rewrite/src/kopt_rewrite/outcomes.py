"""What became of candidates, in words and figures for prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt.model.verification import Status
from kopt_rewrite.comparing import compare
from kopt_rewrite.ideas import one_line
from kopt_rewrite.lineage import attempts_before, mark_of, plain
from kopt_rewrite.rendering import number

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from kopt.model.evaluation import Evaluation
    from kopt.model.history import History
    from kopt_rewrite.comparing import Comparison

_MOST_TRIED = 24
_MOST_OTHERS = 6
_MOST_RESOURCES = 12
_MOST_KERNELS = 4
_OF_A_KERNEL = ("registers", "spill_bytes", "shared_bytes", "num_warps", "num_stages")
MEANINGS: dict[Status, str] = {
    Status.WRONG: "Its results differ from the reference's by more than is allowed.",
    Status.INCOMPLETE_WRITE: "It leaves elements of its results unwritten.",
    Status.MUTATES_INPUT: "It changes an argument that it may only read.",
    Status.INVALID_OUTPUT: "Its results have another shape, dtype or structure than the reference's.",
    Status.DELEGATED: "The work was done by a library, and not by the kernel's own code.",
    Status.NON_DETERMINISTIC: "Two calls on the same data gave different results, or it keeps something between calls.",
    Status.LAUNCH_FAILED: "It raised an error, or a launch was refused.",
    Status.ILLEGAL_ACCESS: "It reads or writes outside of its memory.",
    Status.CRASHED: "Its process ended.",
    Status.HANG: "It did not come back in time.",
    Status.OOM: "It needs more memory than there is.",
    Status.COMPILE_ERROR: "The compiler refused it.",
    Status.PARSE_ERROR: "Its header or its entry point is wrong.",
    Status.UNSUPPORTED: "It refuses a call that the problem makes, or needs what this machine has not.",
}


def measured_lines(evaluation: Evaluation) -> list[str]:
    """Return a measured candidate's figures: times, bandwidth, speedups, resources, knobs."""
    measurement = evaluation.measurement
    if measurement is None:
        return []
    lines = [
        f"workload {one_line(w.workload, 80)}: latency_us = {number(1e3 * w.latency_ms)}, "
        f"achieved_gb_s = {number(w.bandwidth_gb_s)}"
        for w in measurement.workloads
    ]
    lines += [
        f"{number(each.median)} times as fast as {one_line(name, 60)} "
        f"({number(each.low)} to {number(each.high)})"
        for name, each in sorted(measurement.speedup.items())
    ]
    lines += [f"{name} = {value}" for name, value in _resources(evaluation).items()]
    lines += _kernel_lines(evaluation)
    if evaluation.candidate.knobs:
        chosen = ", ".join(f"{k}={v}" for k, v in evaluation.candidate.chosen.items())
        lines.append(f"knobs: {one_line(chosen, 400)}")
    return lines


def _kernel_lines(evaluation: Evaluation) -> list[str]:
    """Return what each kernel of a build needs, as far as its compiler said."""
    listed = (evaluation.build.resources if evaluation.build else {}).get("kernels")
    lines = []
    for each in listed if isinstance(listed, list) else []:
        found = {name: each.get(name) for name in _OF_A_KERNEL} if isinstance(each, dict) else {}
        told = [f"{name} = {number(float(value))}" for name, value in found.items()
                if isinstance(value, (int, float)) and not isinstance(value, bool)]  # fmt: skip
        if told:
            lines.append(f"kernel {one_line(str(each.get('name')), 80)}: {', '.join(told)}")
    return lines[:_MOST_KERNELS]


def other_settings(evaluation: Evaluation, history: History) -> list[str]:
    """Return how long the same source took with other values of its knobs, the fastest first."""
    mine = evaluation.candidate
    found = sorted(
        (e.measurement.latency_ms, e.id, e.candidate.chosen) for e in history
        if e.measurement is not None and e.id != evaluation.id
        and (e.candidate.source, e.candidate.language) == (mine.source, mine.language)
    )  # fmt: skip
    return [
        f"{one_line(', '.join(f'{k}={v}' for k, v in chosen.items()), 200)}: {number(1e3 * ms)} us"
        for ms, _, chosen in found[:_MOST_OTHERS]
    ]


def _resources(evaluation: Evaluation) -> dict[str, str]:
    """Return the numbers that a build reports, by name."""
    found = evaluation.build.resources if evaluation.build else {}
    numbers = {
        one_line(name, 60): number(float(value)) for name, value in sorted(found.items())
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }  # fmt: skip
    return dict(list(numbers.items())[:_MOST_RESOURCES])


def origin(evaluation: Evaluation, history: History) -> Evaluation | None:
    """Return the correct kernel that a candidate was made from, repairs apart; None for a first."""
    chain = [evaluation, *attempts_before(evaluation, history)]
    parents = chain[-1].candidate.parents
    return history.get(parents[0]) if parents else None


def result(evaluation: Evaluation, history: History) -> str:
    """Return in a few words what became of a candidate."""
    if evaluation.measurement is None:
        return f"failed: {evaluation.status}"
    before = origin(evaluation, history)
    if before is not None and before.measurement is not None:
        factor = before.measurement.latency_ms / evaluation.measurement.latency_ms
        return f"right, {number(factor)} times as fast as the kernel it came from"
    # Which baseline is the fastest is measured anew in a resumed run: all of them, then.
    speedups = {name: each.median for name, each in evaluation.measurement.speedup.items()}
    slowest = min(sorted(speedups), key=speedups.__getitem__, default="")
    taken = f"right, {number(1e3 * evaluation.measurement.latency_ms)} us"
    if not slowest:
        return taken
    return f"{taken}, {number(speedups[slowest])} times as fast as {one_line(slowest, 60)}"


def expected(evaluation: Evaluation, history: History) -> Comparison | None:
    """Return what an idea was expected to bring beside what it did; None where that is unknown."""
    return compare(evaluation, origin(evaluation, history), history)


def observed(evaluation: Evaluation, history: History, but: Collection[str] = ()) -> list[str]:
    """Return the figures of a candidate beside those of the kernel that it came from.

    :param but: names of figures that are told elsewhere.
    """
    before = origin(evaluation, history)
    now = evaluation.measurement
    if before is None or before.measurement is None or now is None:
        return []
    lines = {
        "latency_us": f"{number(1e3 * before.measurement.latency_ms)} -> "
        f"{number(1e3 * now.latency_ms)} (x{number(now.latency_ms / before.measurement.latency_ms)})"
    }
    first, then = before.measurement.workloads[0], now.workloads[0]
    if first.workload == then.workload:
        pair = f"{number(first.bandwidth_gb_s)} -> {number(then.bandwidth_gb_s)}"
        lines["achieved_gb_s"] = pair
    old, new = _resources(before), _resources(evaluation)
    lines |= {n: f"{old[n]} -> {new[n]}" for n in new if n in old and old[n] != new[n]}
    return [f"{name}: {said}" for name, said in lines.items() if name not in but]


def tried_lines(history: History, parent: Evaluation | None = None) -> list[str]:
    """Return a line for each idea and its outcome, the latest last, and the best of others'.

    :param parent: the kernel that is shown; its line says so.
    """
    mine = [e for e in history if mark_of(e) is not None]
    others = [e for e in history if mark_of(e) is None]
    fastest = sorted((m.latency_ms, e.id) for e in others if (m := e.measurement))[:_MOST_OTHERS]
    lines = [
        f"by {one_line(e.candidate.strategy, 40)}: {one_line(e.candidate.idea, 160) or 'a kernel'}: "
        f"{result(e, history)}"
        for e in others
        if e.id in {each for _, each in fastest}
    ]
    shown = parent.id if parent else ""
    return lines + [
        _tried(e, history) + (" (the kernel above)" if e.id == shown else "")
        for e in mine[-_MOST_TRIED:]
    ]


def _tried(evaluation: Evaluation, history: History) -> str:
    chain = attempts_before(evaluation, history)
    again = f" (repair {len(chain)})" if chain else ""
    why = f" ({one_line(evaluation.detail, 160)})" if evaluation.measurement is None else ""
    said = one_line(plain(evaluation.candidate.idea), 240)
    found = expected(evaluation, history)
    came = f"; {found.short}" if found and found.short else ""
    return f"{said}{again}: {result(evaluation, history)}{why if why != ' ()' else ''}{came}"


def evidence(evaluation: Evaluation, most: int = 6_000) -> Iterator[dict[str, str]]:
    """Yield what a compiler and the verifiers said of a failure, with a title each."""
    if evaluation.build is not None and evaluation.build.log.strip():
        yield {"title": "The build's log", "text": shortened(evaluation.build.log, most)}
    for verification in evaluation.verifications:
        lines = [
            f"{stage.stage}: {stage.outcome}" + (f": {stage.evidence}" if stage.evidence else "")
            for stage in verification.stages
        ]
        text = "\n".join([*lines, *verification.notes])
        yield {
            "title": f"The verifier {one_line(verification.verifier, 40)}",
            "text": shortened(text, most),
        }


def shortened(text: str, most: int) -> str:
    """Return text of at most ``most`` characters: its beginning, how much is left out, and its end.

    Where there is no room to say so, the beginning alone.
    """
    if len(text) <= most:
        return text
    room = most - len(_left_out(len(text)))
    if room <= 0:
        return text[: max(most, 0)]
    tail = room // 3
    head = room - tail
    return text[:head] + _left_out(len(text) - room) + text[len(text) - tail :]


def _left_out(characters: int) -> str:
    return f"\n[... {characters} characters left out ...]\n"
