"""Every Triton kernel, run by the interpreter at small shapes and compiled for sm_90."""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
F = torch.nn.functional

SM_90_SHARED_BYTES = 232448


def _rms(x, dim, w=None):
    wide = x.float()
    y = wide / torch.sqrt(torch.mean(wide**2, dim=dim, keepdim=True) + 1e-5)
    return (y if w is None else y * w).to(x.dtype)


REFERENCES: dict[str, Any] = {
    "rms_norm": lambda x: _rms(x, -1),
    "rms_norm weighted": lambda x, w: _rms(x, -1, w),
    "rms_norm strided": lambda x: _rms(x, 1),
    "rms_norm strided weighted": lambda x, w: _rms(x, 1, w[:, None]),
    "softmax": lambda x: torch.softmax(x, -1),
    "softmax strided": lambda x: torch.softmax(x, 1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "layer_norm affine": lambda x, w, b: F.layer_norm(x, x.shape[1:], w, b),
    "sum": lambda x: x.sum(-1),
    "sum kept": lambda x: x.sum(-1, keepdim=True),
    "sum strided": lambda x: x.sum(1),
}
PLANES = [(1, 1, 1), (2, 5, 37), (3, 64, 128), (1, 300, 70)]
MATRICES = [(1, 1), (3, 7), (5, 1000), (4, 512), (1, 4097)]
LARGE = {
    "rows": [(8192, 8192), (512, 131072), (4, 1 << 20)],
    "strided": [(112, 64, 512 * 512), (16, 4096, 1000)],
}


def _shapes(name: str) -> list[tuple[int, ...]]:
    return PLANES if "strided" in name else MATRICES


def _arguments(reference, shape, dtype=torch.float32, device="cpu"):
    names = reference.__code__.co_varnames[: reference.__code__.co_argcount]
    generator = torch.Generator().manual_seed(7)

    def draw(extents):
        if device == "meta":
            return torch.empty(extents, dtype=dtype, device=device)
        return torch.randn(extents, generator=generator).to(dtype)

    return {name: draw(shape if name == "x" else shape[1:2]) for name in names}


@pytest.fixture(scope="module")
def interpret(tmp_path_factory):
    """Run candidates in one interpreter process; return their result."""
    folder = tmp_path_factory.mktemp("interpreted")
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("interpreting.py"))], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "TRITON_INTERPRET": "1"},
    )  # fmt: skip

    def call(candidate, arguments, values):
        paths = {name: str(folder / f"{name}.pt") for name in ("arguments", "result")}
        source = folder / f"{candidate.structure}.py"
        source.write_text(candidate.source)
        torch.save(list(arguments), paths["arguments"])
        request = {"source": str(source), "entry": candidate.entry, "values": values, **paths}
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer == "ok\n", f"{candidate.idea} {values}: {json.loads(answer or '0')}"
        return torch.load(paths["result"])

    yield call
    process.stdin.close()
    process.wait(timeout=10)
    process.stdout.close()


def _load(candidate, folder):
    path = folder / f"{candidate.id}.py"
    path.write_text(candidate.source)
    spec = importlib.util.spec_from_file_location(candidate.id, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _proposals_for(trace, propose, name, shape, dtype=torch.float32, *, suiting=None):
    """Candidates as for the shape ``suiting``, so that small runs cover the long-row structures."""
    reference = REFERENCES[name]
    arguments = _arguments(reference, suiting or shape, dtype, "meta")
    return propose(trace(reference, **arguments), "triton")


def _expect(got, reference, arguments):
    exact = reference(*(value.double() for value in arguments.values()))
    unit = {torch.float32: 2.0**-24, torch.float16: 2.0**-11}[got.dtype]
    assert got.shape == exact.shape
    error = (got.double() - exact).abs().max()
    assert float(error) <= 8 * unit * max(1.0, float(exact.abs().max()))


def _small_shape_candidates(trace, propose, name):
    """All structures of an operator, whatever shape they suit."""
    key = "strided" if "strided" in name else "rows"
    found = {}
    for shape in [*_shapes(name)[-2:], *LARGE[key]]:
        for candidate in _proposals_for(trace, propose, name, shape):
            found.setdefault(candidate.idea, candidate)
    return list(found.values())


@pytest.mark.parametrize("name", REFERENCES)
def test_interpreted_kernels_are_right(trace, propose, interpret, name):
    reference = REFERENCES[name]
    candidates = _small_shape_candidates(trace, propose, name)
    assert len(candidates) == _structures(name)
    for candidate in candidates:
        spaces = [[(n, v) for v in knob.choices] for n, knob in candidate.knobs.items()]
        settings = [dict(values) for values in itertools.product(*spaces)]
        assert len(settings) <= 60
        for shape in _shapes(name):
            arguments = _arguments(reference, shape)
            for values in [candidate.chosen, random.Random(str(shape)).choice(settings)]:
                got = interpret(candidate, arguments.values(), values)
                _expect(got, reference, arguments)


def _structures(name):
    operator = name.split()[0]
    if operator == "sum":
        return 1
    return 2 if "strided" in name else 4


@pytest.mark.parametrize("name", ["rms_norm weighted", "softmax", "layer_norm affine", "sum"])
def test_interpreted_kernels_are_right_in_float16(trace, propose, interpret, name):
    reference = REFERENCES[name]
    for candidate in _proposals_for(trace, propose, name, (5, 1000), torch.float16):
        arguments = _arguments(reference, (5, 1000), torch.float16)
        got = interpret(candidate, arguments.values(), candidate.chosen)
        assert got.dtype == torch.float16
        _expect(got, reference, arguments)


@pytest.mark.parametrize("dim", [-1, 1])
def test_softmax_keeps_infinities_and_nan(trace, propose, interpret, dim):
    x = torch.randn(5, 19, 19) if dim == 1 else torch.randn(5, 19)
    x[0] = float("-inf")
    x.select(dim, 3)[1] = float("inf")
    x.select(dim, 3)[2] = float("nan")
    x.select(dim, 3)[3] = float("-inf")
    name = "softmax strided" if dim == 1 else "softmax"
    for candidate in _small_shape_candidates(trace, propose, name):
        got = interpret(candidate, [x], candidate.chosen)
        torch.testing.assert_close(got, torch.softmax(x, dim), equal_nan=True)


class _Recorder:
    """Stands in for a kernel and keeps what it would have been launched with."""

    def __init__(self, kernel, launches):
        self.kernel, self.launches = kernel, launches

    def __getitem__(self, grid):
        def launch(*args, **kwargs):
            self.launches.append((self.kernel, grid, args, kwargs))

        return launch


def _launches(candidate, arguments, folder):
    module = _load(candidate, folder)
    found: list[Any] = []
    for name, value in list(vars(module).items()):
        if isinstance(value, triton.runtime.JITFunction):
            setattr(module, name, _Recorder(value, found))
    getattr(module, candidate.entry)(*arguments.values(), **candidate.chosen)
    return found


def _compile(kernel, args, kwargs):
    """Compile one recorded launch ahead of time, specialised as a launch would be."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    options = {name: kwargs[name] for name in kwargs if name in ("num_warps", "num_stages")}
    given = inspect.signature(kernel.fn).bind(
        *args, **{name: value for name, value in kwargs.items() if name not in options}
    )
    types, constants, attributes = {}, {}, {}
    for index, (name, value) in enumerate(given.arguments.items()):
        types[name] = _type_of(value, kernel.params[index])
        if types[name] == "constexpr":
            constants[name] = value
        elif isinstance(value, torch.Tensor) or (isinstance(value, int) and value % 16 == 0):
            attributes[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, types, constants, attributes)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


def _type_of(value, parameter):
    if parameter.is_constexpr:
        return "constexpr"
    if isinstance(value, torch.Tensor):
        names = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
        return f"*{names[value.dtype]}"
    return "fp32" if isinstance(value, float) else "i32"


AHEAD = [
    ("rms_norm weighted", (8192, 8192), "float16"),
    ("rms_norm", (512, 131072), "float32"),
    ("rms_norm strided", (112, 64, 512 * 512), "float32"),
    ("rms_norm strided weighted", (16, 1000, 1000), "bfloat16"),
    ("softmax", (4096, 4096), "float16"),
    ("softmax", (4096, 131072), "float32"),
    ("softmax strided", (16, 4096, 1000), "bfloat16"),
    ("layer_norm affine", (4096, 5120), "float16"),
    ("layer_norm affine", (16, 1 << 20), "float32"),
    ("sum", (8192, 8192), "float16"),
    ("sum strided", (128, 4096, 4095), "float32"),
]


@pytest.mark.parametrize(("name", "shape", "dtype"), AHEAD)
def test_defaults_compile_for_sm_90(trace, propose, name, shape, dtype, tmp_path):
    pytest.importorskip("triton.backends.nvidia")
    arguments = _arguments(REFERENCES[name], shape, getattr(torch, dtype), "meta")
    candidates = propose(trace(REFERENCES[name], **arguments), "triton")
    assert candidates
    for candidate in candidates:
        launches = _launches(candidate, arguments, tmp_path)
        seen = set()
        for kernel, grid, args, kwargs in launches:
            assert all(extent > 0 for extent in grid)
            assert grid[0] < 2**31 and all(extent < 65536 for extent in grid[1:])
            if kernel.fn.__name__ in seen:
                continue
            seen.add(kernel.fn.__name__)
            compiled = _compile(kernel, args, kwargs)
            assert compiled.metadata.shared <= SM_90_SHARED_BYTES
            assert "cubin" in compiled.asm
