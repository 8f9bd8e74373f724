"""The formats of the core keep the contract of formats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kopt.formats.kernelbench import KernelBenchFormat
from kopt.formats.native import NativeFormat
from kopt.testing import FormatContract

_TOML = """\
[reference]
file = "reference.py"
function = "double"

[inputs.x]
shape = ["n", 4]

[[workloads]]
name = "small"
n = 8
"""
_FUNCTION = "raise RuntimeError('executed')\n\n\ndef double(x):\n    return x * 2\n"
_MODEL = """\
raise RuntimeError("executed")
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2

def get_inputs():
    return [torch.rand(4, 4)]

def get_init_inputs():
    return []
"""


class TestNative(FormatContract):
    def plugin(self) -> NativeFormat:
        return NativeFormat()

    def _folder(self, place: Path, toml: str, function: str = _FUNCTION) -> Path:
        place.mkdir()
        (place / "problem.toml").write_text(toml)
        (place / "reference.py").write_text(function)
        return place

    def good(self, folder: Path) -> Sequence[Path]:
        in_one = folder / "one.py"
        block = "\n".join(f"# {line}" for line in _TOML.splitlines() if "file =" not in line)
        in_one.write_text(f"# /// kopt-problem\n{block}\n# ///\n{_FUNCTION}".replace("# \n", "#\n"))
        place = self._folder(folder / "double", _TOML)
        return [place, place / "problem.toml", in_one]

    def wrong(self, folder: Path) -> Sequence[Path]:
        broken = {
            "not_toml": _TOML.replace("[inputs.x]", "[inputs.x"),
            "unknown_key": _TOML + "\n[speed]\nx = 1\n",
            "no_function": _TOML.replace('"double"', '"triple"'),
            "no_size": _TOML.replace("n = 8", ""),
        }
        places = [self._folder(folder / name, toml) for name, toml in broken.items()]
        return [*places, self._folder(folder / "no_python", _TOML, "def double(x:")]


class TestKernelBench(FormatContract):
    def plugin(self) -> KernelBenchFormat:
        return KernelBenchFormat()

    def good(self, folder: Path) -> Sequence[Path]:
        path = folder / "double.py"
        path.write_text(_MODEL)
        return [path]

    def wrong(self, folder: Path) -> Sequence[Path]:
        texts = {
            "no_inputs": _MODEL.replace("get_inputs", "inputs"),
            "no_init_inputs": _MODEL.replace("get_init_inputs", "init"),
            "no_python": _MODEL + "\ndef (",
        }
        for name, text in texts.items():
            (folder / f"{name}.py").write_text(text)
        return [folder / f"{name}.py" for name in texts]
