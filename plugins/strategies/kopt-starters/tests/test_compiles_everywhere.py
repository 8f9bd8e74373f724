"""Every kernel of the families compiles for GPUs that are not here, fits, and shows its spills.

What operators alone propose is compiled in ``tests/integration/test_compiles_everywhere.py``.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton.backends.nvidia")

import torch

import kopt_starters
from kopt.model.candidate import Candidate
from kopt.model.device import Device, Target
from kopt.model.problem import InputSpec, Problem, Signature, Workload
from kopt.testing.problems import function_problem
from kopt_starters import Starters
from kopt_starters.operators import OPERATORS
from kopt_torch.shapes import signature_by_shapes
from kopt_triton.architectures import named
from kopt_triton.resources import from_tools

CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))
TEMPLATES = Path(kopt_starters.__file__).with_name("kernels")


def gpu(architecture: str, units: int, memory: int, cache: int) -> Device:
    """Return a GPU with as many multiprocessors, GB of memory and MB of cache."""
    return Device(
        kind="cuda", name="test", architecture=architecture, units=units,
        memory_bytes=memory << 30, cache_bytes=cache << 20,
    )  # fmt: skip


GPUS = [gpu("sm_80", 108, 80, 40), gpu("sm_90", 132, 80, 50), gpu("sm_100", 148, 180, 126)]
GATED = "F.silu(F.linear(x, a)) * F.linear(x, b)"
ATTENTION = "F.scaled_dot_product_attention(q, k, v, is_causal=True)"
TURNED = "x * c + torch.cat((-x.chunk(2, -1)[1], x.chunk(2, -1)[0]), -1) * s"
SQUARE = dict.fromkeys("ab", (4096, 4096))
CASES = {
    "broadcast": ("x * y + z", "bfloat16", {"x": (64, 64, 512, 512), "y": (64, 1, 1), "z": (64, 1, 1)}),
    "product": ("a @ b", "float32", SQUARE),
    "product of halves": ("a.T @ b", "bfloat16", SQUARE),
    "product of odd rows": (
        "torch.relu(F.linear(a, b, c))", "float16",
        {"a": (8205, 2949), "b": (5921, 2949), "c": (5921,)},
    ),
    "product of odd rows of float32": ("a @ b", "float32", {"a": (8205, 2949), "b": (2949, 5921)}),
    "deep product": ("a @ b", "float32", {"a": (256, 1 << 19), "b": (1 << 19, 256)}),
    "shallow product": ("a @ b", "bfloat16", {"a": (8192, 128), "b": (128, 8192)}),
    "shallow product of float32": ("a @ b", "float32", {"a": (16384, 64), "b": (64, 16384)}),
    "product with a vector": ("a @ b", "float32", {"a": (2048, 1 << 20), "b": (1 << 20, 1)}),
    "diagonal": ("torch.diag(a) @ b", "float16", {"a": (4096,), "b": (4096, 4096)}),
    "product, then functions": (
        "torch.sigmoid(F.linear(a, b)) * 2", "float32", {"a": (1024, 8192), "b": (8192, 8192)},
    ),
    "gated": (GATED, "bfloat16", {"x": (8192, 4096)} | dict.fromkeys("ab", (11008, 4096))),
    "gated, odd rows": (GATED, "float32", {"x": (1009, 4099)} | dict.fromkeys("ab", (11003, 4099))),
    "short rows": ("x / x.abs().mean(dim=1, keepdim=True)", "float32", {"x": (4096, 8192)}),
    "long rows": ("x / x.abs().mean(dim=1, keepdim=True)", "float32", {"x": (32768, 65535)}),
    "one row": ("x / torch.norm(x, p='fro')", "float32", {"x": (112, 64, 512, 512)}),
    "columns": ("torch.argmax(x, dim=1)", "float32", {"x": (128, 4096, 4095)}),
    "convolution": ("F.conv2d(x, w)", "float32", {"x": (8, 64, 512, 1024), "w": (128, 64, 3, 3)}),
    "convolution of halves": (
        "F.conv2d(x, w, padding=1)", "bfloat16", {"x": (8, 64, 512, 1024), "w": (128, 64, 3, 3)},
    ),
    "convolution of few channels": (
        "F.conv2d(x, w, stride=4, padding=2)", "float32",
        {"x": (256, 3, 224, 224), "w": (96, 3, 11, 11)},
    ),
    "exact convolution": (
        "F.conv3d(x, w)", "float32", {"x": (16, 3, 64, 64, 64), "w": (64, 3, 3, 3, 3)},
    ),
    "pointwise convolution": (
        "F.conv2d(x, w)", "float32", {"x": (16, 64, 1024, 1024), "w": (128, 64, 1, 1)},
    ),
    "transposed convolution": (
        "F.conv_transpose3d(x, w, stride=2, padding=1, dilation=2)", "bfloat16",
        {"x": (16, 32, 16, 32, 32), "w": (32, 64, 3, 3, 3)},
    ),
    "separable convolution": (
        "F.conv2d(F.conv2d(x, w, padding=1, groups=64), p)", "float32",
        {"x": (16, 64, 512, 512), "w": (64, 1, 3, 3), "p": (128, 64, 1, 1)},
    ),
    "windows in a row": ("F.max_pool1d(x, 8, 1, 4, 3)", "float32", {"x": (64, 192, 65536)}),
    "windows": ("F.avg_pool2d(x, 11)", "float16", {"x": (16, 64, 2048, 2048)}),
    "scan": ("torch.cumsum(x, 1)", "float32", {"x": (4, 1 << 24)}),
    "scan of columns": ("torch.cumprod(x, 1)", "bfloat16", {"x": (64, 4096, 1024)}),
    "cross-entropy": ("F.cross_entropy(x, t)", "float16", {"x": (4096, 32000), "t": (4096,)}),
    "attention": (ATTENTION, "float16", dict.fromkeys("qkv", (8, 16, 4096, 64))),
    "attention, exact": (ATTENTION, "float32", dict.fromkeys("qkv", (4, 8, 1024, 256))),
    "attention, wide heads": (ATTENTION, "float16", dict.fromkeys("qkv", (32, 32, 512, 1024))),
    "rotary": (TURNED, "float16", {"x": (2, 32, 4096, 128)} | dict.fromkeys("cs", (4096, 128))),
    "convolution, norm and pooling": (
        "F.max_pool2d(F.group_norm(F.gelu(F.conv2d(x, w, b)), 8, g, h), 2)", "bfloat16",
        {"x": (64, 32, 64, 64), "w": (64, 32, 3, 3)} | dict.fromkeys("bgh", (64,)),
    ),
    "convolution and softmax": (
        "torch.softmax(F.conv2d(x, w, b), 1)", "float32",
        {"x": (4, 64, 66, 66), "w": (128, 64, 3, 3), "b": (128,)},
    ),
}  # fmt: skip
"""What is proposed for them is made of every template and every generated structure."""
ONLY = {
    "gated": {"families": ("mlp",)},
    "gated, odd rows": {"families": ("mlp",)},
    "product, then functions": {"families": ("vendor",)},
    "convolution, norm and pooling": {"structures": 2},
    "convolution and softmax": {"structures": 1},
}
"""Options, where others would propose the same kernels joined otherwise."""
SPILLS = {
    "product of odd rows": {"sm_90 _tiles": 8},
    "product of odd rows of float32": {"sm_90 _walk": 48, "sm_100 _walk": 344},
    "long rows": {"sm_80 _looped": 88},
    "attention, exact": {"sm_90 _attend": 1160, "sm_100 _attend": 1128},
    "convolution, norm and pooling": {
        "sm_80 _s3_whole": 992, "sm_90 _s3_whole": 920, "sm_100 _s3_whole": 920,
        "sm_90 _s2_product_of_taps": 88,
    },
}  # fmt: skip
"""Bytes that kernels are known to spill with Triton 3.7, by case, architecture and name."""
STRUCTURES = {
    "pointwise": ("tiles of rows", "flat range"),
    "reductions": (
        "in registers",
        "sweeps over tiles",
        "partial states",
        "one read",
        "second read",
    ),
}
"""Words for the ideas of what is written without a template, by family."""


def signature(name: str) -> tuple[Problem, Signature]:
    """Return a case as a problem, and its signature, traced on shapes alone."""
    body, dtype, shapes = CASES[name]
    source = (
        "import torch\nimport torch.nn.functional as F\n\n\n"
        f"def reference({', '.join(shapes)}):\n    return {body}\n"
    )
    inputs = [
        InputSpec(name=n, shape=s, dtype="int64" if n == "t" else dtype) for n, s in shapes.items()
    ]
    problem = function_problem(source, "reference", tuple(inputs), workloads=(Workload(),))
    return problem, signature_by_shapes(problem)


@pytest.fixture
def compiled_anew(monkeypatch, tmp_path):
    """Let no kernel come from a cache."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "compiled"))


@pytest.mark.usefixtures("compiled_anew")
@pytest.mark.parametrize("name", CASES)
def test_defaults_compile_and_fit(name):
    problem, traced = signature(name)
    given = [
        torch.empty(each.tensor.shape, dtype=getattr(torch, each.tensor.dtype), device="meta")
        for each in traced.first.arguments
    ]
    spilled: dict[str, int] = {}
    for device in GPUS:
        architecture = named(device.architecture)
        candidates = proposed(name, device, problem, traced)
        assert candidates
        for candidate in candidates:
            kernels = CHECK.compiled(candidate, given, architecture=architecture)
            for used in (from_tools(kernel, architecture) for kernel in kernels):
                assert used.architecture == device.architecture
                assert used.registers is not None and 8 <= used.registers <= 255, used
                assert used.spill_bytes is not None and used.limits_exceeded == (), used
                if used.spill_bytes:
                    key = f"{device.architecture} {used.name}"
                    spilled[key] = max(spilled.get(key, 0), used.spill_bytes)
            assert kernels
    known = SPILLS.get(name, {})
    assert set(spilled) == set(known)
    assert all(count <= known[key] for key, count in spilled.items()), spilled


def proposed(name: str, device: Device, problem: Problem, traced: Signature) -> list[Candidate]:
    """Return what the strategy proposes for a case on a GPU."""
    target = Target(language="triton", device=device)
    starters = Starters(Starters.Options(**ONLY.get(name, {})))
    return list(starters.kopt_propose(problem, traced, target, None))


def test_every_template_and_every_structure_is_tried():
    found = [each for name in CASES for each in proposed(name, GPUS[1], *signature(name))]
    sources, ideas = "\n".join(each.source for each in found), [each.idea for each in found]
    theirs = {structure.template for each in OPERATORS for structure in each.structures}
    for path in set(TEMPLATES.glob("*.py.txt")):
        plain = [line for line in path.read_text().splitlines() if "$" not in line]
        if path.name not in theirs:
            assert max(plain, key=len) in sources, path.name
    for family, words in STRUCTURES.items():
        own = " ".join(idea for idea in ideas if idea.startswith(family))
        assert all(each in own for each in words), own


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_product_has_descriptors_only_where_there_is_hardware_for_them(dtype):
    problem, traced = signature("product" if dtype == "float32" else "product of halves")
    for device in GPUS:
        candidates = proposed("product", device, problem, traced)
        described = ["make_tensor_descriptor" in each.source for each in candidates]
        assert any(described) == (device.architecture != "sm_80")
        assert not all(described)


def test_float32_products_are_in_parts_that_fit_tensor_memory():
    problem, traced = signature("product")
    choices = {}
    for device in GPUS:
        found = proposed("product", device, problem, traced)
        (tiles,) = (each for each in found if "one program per tile" in each.idea)
        choices[device.architecture] = tiles.knobs["PRECISION"].choices
    assert "bf16x6" in choices["sm_90"] and "bf16x6" in choices["sm_80"]
    assert "bf16x6" not in choices["sm_100"]
