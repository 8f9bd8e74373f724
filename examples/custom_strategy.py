"""A strategy without a package: an instance of a class in this script."""

import sys
from pathlib import Path

import kopt


class Flags:
    """Builds the best kernel again with other compiler flags."""

    @kopt.hookimpl
    def kopt_propose(self, target, parent):
        if target.language != "cpp" or parent is None or "flags" in parent.candidate.settings:
            return
        for flag in ("-funroll-loops", "-fno-signed-zeros"):
            opening = "// /// kopt\n"
            source = parent.candidate.source.replace(
                opening, f'{opening}// flags = ["{flag}"]\n', 1
            )
            child = parent.candidate.child(source, strategy="flags", idea=flag)
            yield child.model_copy(update={"values": parent.candidate.chosen})


if __name__ == "__main__":
    problem = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "rms_norm"
    run = kopt.optimize(
        problem, backend="cpp", strategies=["starters", Flags()], search="greedy",
        budget=kopt.Budget(trials=6),
    )  # fmt: skip
    print(f"{run.status}: {run.reason}")
    if run.best:
        print(f"won by {run.best.candidate.strategy}: {run.best.candidate.idea}")
