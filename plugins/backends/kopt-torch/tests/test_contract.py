"""The torch backend keeps the contract of backends, for candidates in plain PyTorch."""

from __future__ import annotations

from kopt.testing import BackendContract
from kopt_torch import TorchBackend


def source(parameters: str, body: str) -> str:
    return (
        "# /// kopt\n# [knobs]\n# STEP = [1, 2]\n# ///\n"
        f"import torch\n\n\ndef kernel_function({parameters}):\n    {body}\n"
    )


class TestTorchBackend(BackendContract):
    language = "torch"
    add = source("x, y, *, STEP", "assert STEP == 1; return x + y")
    two_outputs = source("x, y", "return x + y, x - y")
    integers = source("n", "return 2 * n + 1")
    in_place = source("x, y", "x.add_(y)")
    scaled = source("x, *, factor", "return x * factor")
    constant = source("x", "return x * FACTOR") + "\n\nFACTOR = 2.5\n"
    endless = source("x", "while True: pass")
    comment = "#"
    broken = source("x, y", "return x +")
    complaint = r"line 9: invalid syntax"

    def plugin(self) -> TorchBackend:
        return TorchBackend(TorchBackend.Options())
