"""Verdicts and times for the five kernels that KernelAgent published, input and optimised, in bfloat16.

python benchmarks/kernelagent_artifacts.py --root DIR -o benchmarks/results/NAME.json [--ids 36 82]
python benchmarks/kernelagent_artifacts.py --root DIR -o FOLDER --write

DIR is a checkout of github.com/kaiming-cheng/kernelagent-optimization-artifacts, which is no part
of this repository. Each problem is its ``problem.py`` with inputs and parameters in bfloat16, as
its authors' benchmark has them; each kernel is its file with an entry that passes what the module's
constructor was given.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kopt.cli.outcome import evaluation_json, measured_verdict
from kopt.cli.progress import ProgressReporter
from kopt.config import Settings
from kopt.errors import KoptError
from kopt.model.kernel_file import parse_kernel
from kopt.optimize import load_problem
from kopt.single import open_bench

KERNELS = {"input": "input_kernel.py", "optimized": "optimized_kernel_beam_search.py"}
ENTRIES = {
    "04": ("A, B", "A, B"),
    "36": ("x", "x, eps=1e-5"),
    "43": ("x", "x, 3, 2, 1, 3"),
    "77": (
        "x, conv_transpose3d_weight",
        "x, conv_transpose3d_weight, stride=2, padding=1, dilation=2",
    ),
    "82": ("x, conv2d_weight", "x, conv2d_weight, stride=1, padding=0"),
}
"""What the entry takes, by the names of forward's arguments and of the parameters, and passes."""
OTHERWISE = {"36": ("input_kernel.py", "x", "x, out=torch.empty_like(x)")}
"""The same kernel called in another way: 36's writes its result into its input if it has no other."""
_HEADER = '# /// kopt\n# language = "triton"\n# entry = "entry"\n# ///\n'
_ENTRY = "\n\ndef entry({takes}):\n    return kernel_function({passes})\n"
_BFLOAT16 = '''

class Model(Float32Model):
    """The same with parameters in bfloat16."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.to(torch.bfloat16)


def get_inputs():
    return [value.to(torch.bfloat16) for value in get_float32_inputs()]
'''


def problem_source(text: str) -> str:
    """Return a problem's source in bfloat16."""
    for old, new in (
        ("class Model(", "class Float32Model("), ("super(Model, self)", "super()"),
        ("def get_inputs(", "def get_float32_inputs("),
    ):  # fmt: skip
        if old not in text:
            raise SystemExit(f"{old!r} is not in a problem.py of these artifacts; another version?")
        text = text.replace(old, new)
    return text + _BFLOAT16


def kernels_of(folder: Path, number: str) -> dict[str, str]:
    """Return the published kernels of a problem as kernel files, by what they are called."""
    calls = {name: (file, *ENTRIES[number]) for name, file in KERNELS.items()}
    if number in OTHERWISE:
        calls["input, called otherwise"] = OTHERWISE[number]
    return {
        name: _HEADER
        + (folder / file).read_text(encoding="utf-8")
        + _ENTRY.format(takes=takes, passes=passes)
        for name, (file, takes, passes) in calls.items()
    }


def measured(folder: Path, number: str, settings: Settings) -> dict[str, Any]:
    """Verify and time both kernels of a problem beside every baseline."""
    began = time.monotonic()
    files = kernels_of(folder, number)
    kernels = {name: parse_kernel(text, "triton") for name, text in files.items()}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / f"{number}.py"
        text = (folder / "problem.py").read_text(encoding="utf-8")
        path.write_text(problem_source(text), encoding="utf-8")
        problem = load_problem(path)
        with (
            ProgressReporter() as progress,
            open_bench(problem, list(kernels.values()), settings, progress) as bench,
        ):
            found = {name: bench.measure(candidate) for name, candidate in kernels.items()}
            opening = bench.opening
    return {
        "problem": folder.name, "seconds": round(time.monotonic() - began, 1),
        "device": opening.device.to_json(), "noise": opening.noise, "copy_ms": opening.copy_ms,
        "baselines": {b.name: b.measurement.latency_ms for b in opening.baselines},
        "failed_baselines": opening.failed_baselines,
        "kernels": {
            name: {"verdict": measured_verdict(each), **evaluation_json(each)}
            for name, each in found.items()
        },
    }  # fmt: skip


def written(root: Path, numbers: list[str], output: Path) -> None:
    """Write each problem and its kernels as files, for `kopt profile`."""
    output.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        (folder,) = root.glob(f"{number}_*")
        text = (folder / "problem.py").read_text(encoding="utf-8")
        (output / f"problem_{number}.py").write_text(problem_source(text), encoding="utf-8")
        for name, kernel in kernels_of(folder, number).items():
            file = f"{'_'.join(name.replace(',', '').split())}_{number}.py"
            (output / file).write_text(kernel, encoding="utf-8")


def main() -> None:
    """Measure each problem and write what was found so far."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument(
        "--write",
        action="store_true",
        help="write problems and kernel files into a folder, no more",
    )
    parser.add_argument("--ids", nargs="+", default=list(ENTRIES), choices=list(ENTRIES))
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile")
    given = parser.parse_args()
    if given.write:
        written(given.root, given.ids, given.output)
        return
    options = {"backend.torch": {"compile": not given.no_compile}}
    settings = Settings(device="cuda", options=options)
    record: dict[str, Any] = {
        "schema": 1,
        "recorded": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "platform": platform.platform(), "python": platform.python_version(),
        "versions": {name: version(name) for name in ("kopt", "torch", "triton")}, "problems": {},
    }  # fmt: skip
    for number in given.ids:
        (folder,) = given.root.glob(f"{number}_*")
        try:
            record["problems"][number] = measured(folder, number, settings)
        except KoptError as error:
            record["problems"][number] = {"problem": folder.name, "error": str(error)}
        given.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(number, json.dumps(_short(record["problems"][number])))


def _short(found: dict[str, Any]) -> dict[str, Any]:
    if "error" in found:
        return {"error": found["error"][:300]}
    return {
        "baselines_ms": found["baselines"],
        **{
            name: {
                "status": each["status"], "detail": each["detail"][:200],
                "ms": (each["measurement"] or {}).get("latency_ms"),
            }
            for name, each in found["kernels"].items()
        },
    }  # fmt: skip


if __name__ == "__main__":
    main()
