"""What cupy raises becomes a status and a line of the user's file: cupy's own exceptions, no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from kopt.errors import CandidateError
from kopt.model.verification import Status

pytest.importorskip("cupy")
from cupy.cuda import compiler
from cupy_backends.cuda.api.driver import CUDADriverError

from kopt.model.kernel_file import parse_kernel
from kopt_cuda.python_kernels import CompiledKernels
from kopt_cuda.python_lines import candidate_error, file_line
from kopt_torch.modules import import_source, load_entry

FILE = '''\
# a file
HEAD = "#define N 4\\n"
SOURCE = r"""
extern "C" __global__ void f(float *x) {
    x[0] = missing;
    x[1] = 1;
}
"""
ONE_LINE = 'extern "C" __global__ void g(float *x) { x[0] = missing; }'
TWICE = """
    x[1] = 1;
"""
'''
NAMES: dict[str, str] = {}
exec(FILE, NAMES)


def refusal(code: str, name: str, options: tuple[str, ...] = ()) -> Exception:
    """Return what cupy raises: its own NVRTC class, which needs no driver."""
    program = compiler._NVRTCProgram(code, name, method="cubin")
    with pytest.raises(compiler.CompileException) as caught:
        program.compile((*options, "-arch=sm_90"))
    return caught.value


@pytest.mark.parametrize("name", ["/tmp/tmpab_1/0123abc.cu", "default_program"])
def test_a_refused_source_has_the_line_of_the_file(name):
    error = candidate_error(refusal(NAMES["SOURCE"], name), FILE, Path("/nowhere"))
    assert error.status is Status.COMPILE_ERROR
    assert error.detail.splitlines()[:2] == [
        'kernel.py:5: error: identifier "missing" is undefined', "      x[0] = missing;",
    ]  # fmt: skip
    assert "tmpab" not in error.detail
    assert "detected" not in error.detail


def test_a_refused_option_is_in_the_compilers_words():
    error = refusal(NAMES["SOURCE"], "/tmp/a/b.cu", ("--no-such-option",))
    found = candidate_error(error, FILE, Path("/nowhere"))
    assert found.status is Status.COMPILE_ERROR
    assert "no-such-option" in found.detail


def test_a_standard_header_is_not_among_cupys():
    code = "#include <cstdint>\n" + NAMES["SOURCE"]
    found = candidate_error(refusal(code, "a.cu"), FILE, Path("/nowhere"))
    assert found.status is Status.COMPILE_ERROR
    assert "include CUDA's own, as <cuda/std/cstdint>" in found.detail


def test_what_was_wrapped_on_its_way_is_looked_into():
    error = refusal(NAMES["SOURCE"], "a.cu")
    wrapped = CandidateError(Status.LAUNCH_FAILED, "importing it raised CompileException")
    wrapped.__cause__ = error
    assert candidate_error(wrapped, FILE, Path("/nowhere")).status is Status.COMPILE_ERROR


def test_what_was_said_in_other_words_is_kept():
    for cause in (None, RuntimeError("size mismatch"), SyntaxError("no")):
        said = CandidateError(Status.PARSE_ERROR, "the reference's parameters do not fit it")
        said.__cause__ = cause
        assert candidate_error(said, FILE, Path("/nowhere")) is said


@pytest.mark.parametrize(
    ("code", "line", "wanted"),
    [
        (NAMES["SOURCE"], 3, 5), (NAMES["HEAD"] + NAMES["SOURCE"], 4, 5),
        (NAMES["ONE_LINE"], 1, 9), (NAMES["HEAD"] + NAMES["SOURCE"], 1, 2),
        (NAMES["SOURCE"], 4, 6),
        (NAMES["SOURCE"] + " ", 4, None),  # two literals have that line
        (NAMES["SOURCE"].replace("x[0]", "x[9]"), 3, None), (NAMES["SOURCE"], 99, None),
    ],
)  # fmt: skip
def test_a_line_of_a_string_is_found_in_the_file(code, line, wanted):
    assert file_line(FILE, code, line) == wanted


@pytest.mark.parametrize(
    ("number", "status"),
    [(700, Status.ILLEGAL_ACCESS), (716, Status.ILLEGAL_ACCESS), (2, Status.OOM),
     (1, Status.LAUNCH_FAILED), (500, Status.COMPILE_ERROR), (701, Status.LAUNCH_FAILED)],
)  # fmt: skip
def test_what_the_driver_refuses_has_its_status(number, status):
    error = driver_error(number)
    found = candidate_error(error, FILE, Path("/nowhere"))
    assert found.status is status, found.detail


def driver_error(number: int) -> Exception:
    words = {
        700: "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered",
        716: "CUDA_ERROR_MISALIGNED_ADDRESS: misaligned address",
        2: "CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        1: "CUDA_ERROR_INVALID_VALUE: invalid argument",
        500: "CUDA_ERROR_NOT_FOUND: named symbol not found",
        701: "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources requested for launch",
    }
    made = CUDADriverError.__new__(CUDADriverError)  # its constructor asks the driver for words
    RuntimeError.__init__(made, words[number])
    return made


def test_a_failing_launcher_has_the_line_that_failed(tmp_path):
    source = (
        "# /// kopt\n# language = 'cuda'\n# ///\ndef kernel_function(x):\n    return x.nothing\n"
    )
    entry = load_entry(parse_kernel(source, "cuda"), tmp_path)
    with pytest.raises(AttributeError) as caught:
        entry(1)
    found = candidate_error(caught.value, source, tmp_path)
    assert found.status is Status.LAUNCH_FAILED
    assert found.detail.startswith("kernel.py:5: AttributeError: ")


def test_makers_are_noted_and_put_back(tmp_path):
    import cupy

    before = (cupy.RawKernel, cupy.RawModule)
    kernels = CompiledKernels()
    with kernels.watching():
        module = import_source(
            f"import cupy\nfrom cupy import RawKernel\n{FILE}"
            "kernel = RawKernel(SOURCE, 'f', options=('-DN=1',))\n"
            "module = cupy.RawModule(code=SOURCE, options=('-DN=2',))\n",
            tmp_path,
        )
    assert (cupy.RawKernel, cupy.RawModule) == before
    assert isinstance(module.kernel, cupy.RawKernel)
    assert isinstance(module.module, cupy.RawModule)
    assert (module.kernel.name, module.kernel.options) == ("f", ("-DN=1",))
    assert (module.module.code, module.module.options) == (NAMES["SOURCE"], ("-DN=2",))
    assert not kernels.changed()
