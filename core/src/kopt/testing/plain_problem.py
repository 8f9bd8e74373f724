"""A tiny problem for the ``plain`` backend, and candidates for it."""

from __future__ import annotations

import textwrap

from kopt.model.candidate import Candidate
from kopt.model.problem import InputSpec, Problem, ReferenceSource, Workload

DOUBLE = "def double(x, out):\n    for i in range(len(x)):\n        out[i] = 2.0 * x[i]\n"


def double(elements: int = 64) -> Problem:
    """Return the problem of doubling every element of a float64 vector."""
    return Problem(
        name="double", format="plain", workloads=(Workload(sizes={"n": elements}),),
        reference=ReferenceSource(kind="function", source=DOUBLE, entry="double"),
        inputs=(InputSpec(name="x", shape=("n",), dtype="float64"),),
    )  # fmt: skip


def candidate(body: str, *, before: str = "") -> Candidate:
    """Return a candidate whose function of ``x`` and ``out`` has ``body``, after ``before``."""
    source = f"{textwrap.dedent(before)}\ndef double(x, out):\n"
    source += textwrap.indent(textwrap.dedent(body).strip(), "    ") + "\n"
    return Candidate(language="plain", source=source, entry="double")


def right(number: int) -> Candidate:
    """Return one of as many right candidates as there are numbers."""
    return candidate(f"number = {number}\nfor i in range(len(x)):\n    out[i] = x[i] + x[i]")
