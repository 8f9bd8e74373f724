"""Writes AutoKernel's Triton kernels as kernel files for kopt's problems of the same operators.

python benchmarks/autokernel_kernels.py --root DIR -o FOLDER
python benchmarks/starters_judged.py table4 --ids 1-14 --compile --beside FOLDER -o benchmarks/results/NAME.json
python benchmarks/starters_judged.py benchmarks/pairs --compile --beside FOLDER -o benchmarks/results/NAME.json
python benchmarks/beside_table.py benchmarks/results/NAME.json ...

DIR is a checkout of github.com/RightNow-AI/autokernel, which is no part of this repository. Each kernel
is its file with an entry that passes what the problem has. Its rotary embedding turns numbers beside
each other, which is another operator than table4's and has a problem of its own in ``benchmarks/pairs``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

KERNELS = {
    "matmul": ("matmul", "a, b", "kernel_fn(a, b)"),
    "softmax": ("softmax", "x", "kernel_fn(x)"),
    "layernorm": ("layernorm", "x, weight, bias", "kernel_fn(x, weight, bias)"),
    "rmsnorm": ("rmsnorm", "x, weight", "kernel_fn(x, weight)"),
    "cross_entropy": (
        "cross_entropy", "logits, target", "kernel_fn(logits, target).to(logits.dtype)",
    ),
    "reduce": ("reduce", "x", "kernel_fn(x)"),
    "rotary_pairs": ("rotary_embedding", "x, cos, sin", "kernel_fn(x, cos, sin)"),
}  # fmt: skip
"""By problem: AutoKernel's file, what the entry takes, and what it returns."""
_HEADER = '# /// kopt\n# language = "triton"\n# entry = "entry"\n# ///\n'
_ENTRY = "\n\ndef entry({takes}):\n    return {returns}\n"


def main() -> None:
    """Write a file for each problem."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True, help="checkout of AutoKernel")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the files")
    given = parser.parse_args()
    if not (given.root / "kernels").is_dir():
        parser.error(f"{given.root} has no folder kernels; --root is a checkout of AutoKernel")
    given.output.mkdir(parents=True, exist_ok=True)
    for problem, (file, takes, returns) in KERNELS.items():
        text = (given.root / "kernels" / f"{file}.py").read_text(encoding="utf-8")
        kernel = _HEADER + text + _ENTRY.format(takes=takes, returns=returns)
        (given.output / f"{problem}.py").write_text(kernel, encoding="utf-8")


if __name__ == "__main__":
    main()
