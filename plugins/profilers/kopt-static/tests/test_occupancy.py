"""The occupancy calculator, against counters of an H100 and against NVIDIA's own calculator."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from kopt_static.occupancy import MULTIPROCESSORS, multiprocessor, occupancy

HERE = Path(__file__).parent
H100_UNITS = 132


class Recorded(NamedTuple):
    """One kernel as ncu 2025.3 reported it on an H100 80GB HBM3, by ncu's names."""

    grid: int
    threads: int
    registers: int
    static_shared_bytes: int
    shared_mem_config_size: int
    limit_registers: int
    limit_shared_mem: int
    limit_warps: int
    limit_blocks: int
    waves: float
    maximum_warps_pct: float


RECORDED = {
    "row_sum": Recorded(32, 128, 31, 0, 32768, 16, 32, 16, 32, 0.02, 100),
    "transpose": Recorded(16384, 1024, 16, 4096, 16384, 4, 3, 2, 32, 62.06, 100),
    "spill": Recorded(512, 256, 32, 0, 32768, 8, 32, 8, 32, 0.48, 100),
}


@pytest.mark.parametrize("name", RECORDED)
def test_an_h100_counted_the_same(name):
    seen = RECORDED[name]
    on = multiprocessor("sm_90")
    assert on is not None
    # ncu reports the limit of the carve-out that the driver had chosen.
    chosen = replace(on, shared_bytes=seen.shared_mem_config_size)
    fits = occupancy(chosen, seen.threads, seen.registers, seen.static_shared_bytes)
    assert fits.registers == seen.limit_registers
    assert fits.shared == seen.limit_shared_mem
    assert fits.warps == seen.limit_warps
    assert fits.blocks == seen.limit_blocks
    assert fits.percent == seen.maximum_warps_pct
    assert round(seen.grid / (fits.resident * H100_UNITS), 2) == seen.waves
    largest = occupancy(on, seen.threads, seen.registers, seen.static_shared_bytes)
    assert largest.shared >= seen.limit_shared_mem
    assert largest.percent == seen.maximum_warps_pct


def _header() -> Path | None:
    """The folder of NVIDIA's calculator: the toolkit's is newer than the one in Triton."""
    nvcc, spec = shutil.which("nvcc"), find_spec("triton")
    folders = [Path(nvcc).resolve().parents[1] / "include"] if nvcc else []
    folders.append(Path("/usr/local/cuda/include"))
    for place in (spec.submodule_search_locations if spec else None) or ():
        folders.append(Path(place) / "backends" / "nvidia" / "include")
    return next((each for each in folders if (each / "cuda_occupancy.h").exists()), None)


@pytest.fixture(scope="module")
def calculator(tmp_path_factory):
    """NVIDIA's calculator, compiled; takes and gives lines of numbers."""
    header, compiler = _header(), shutil.which("g++")
    if header is None or compiler is None:
        pytest.skip("needs g++ and cuda_occupancy.h, which the CUDA toolkit and triton have")
    made = tmp_path_factory.mktemp("calculator") / "calculator"
    command = [compiler, "-isystem", str(header), str(HERE / "calculator.cpp"), "-o", str(made)]
    subprocess.run(command, check=True, capture_output=True)
    return made


def _cases(capability):
    on = MULTIPROCESSORS[capability]
    shared = [0, 1, 128, 1000, 12345, 49152, 49153, on.shared_bytes // 2, on.shared_bytes - 1024]
    yield from itertools.product(
        [1, 32, 33, 64, 96, 128, 192, 256, 384, 512, 768, 1000, 1024],
        [16, 24, 31, 32, 33, 40, 48, 63, 64, 72, 80, 96, 128, 168, 200, 255], shared, [0, 1, 2, 7],
    )  # fmt: skip


@pytest.mark.parametrize("capability", MULTIPROCESSORS)
def test_nvidias_calculator_says_the_same(calculator, capability):
    on, cases = MULTIPROCESSORS[capability], list(_cases(capability))
    device = [capability, on.warps, on.shared_bytes, on.reserved_bytes]
    asked = "\n".join(" ".join(map(str, [*device, *case])) for case in cases)
    done = subprocess.run([calculator], input=asked, capture_output=True, text=True, check=True)
    answers = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(answers) == len(cases)
    if answers[0][0]:
        pytest.skip("this header does not know the architecture")
    for (threads, registers, shared, barriers), answer in zip(cases, answers, strict=True):
        fits = occupancy(on, threads, registers, shared, barriers)
        if not shared + on.reserved_bytes:  # it says that there is no limit, with a large number
            answer = (*answer[:3], on.blocks, *answer[4:])
        said = (0, fits.resident, fits.registers, fits.shared, fits.warps, fits.blocks)
        assert said == answer, (threads, registers, shared, barriers)


def test_a_block_may_take_what_the_backend_lets_it():
    architectures = pytest.importorskip("kopt_cuda.architectures")
    known = [each for each in MULTIPROCESSORS if each in architectures._SHARED_BYTES]
    assert len(known) >= 10
    for each in known:
        on = MULTIPROCESSORS[each]
        assert on.shared_bytes - on.reserved_bytes == architectures.named(f"sm_{each}").shared_bytes


@pytest.mark.parametrize("architecture", ["sm_72", "sm_101", "sm_200", "gfx942", "", "sm_9"])
def test_an_unknown_architecture_is_not_guessed(architecture):
    assert multiprocessor(architecture) is None


def test_architecture_specific_names_are_the_architecture():
    assert multiprocessor("sm_90a") == multiprocessor("sm_90") == MULTIPROCESSORS[90]
    assert multiprocessor("sm_100f") == MULTIPROCESSORS[100]


def test_what_is_not_known_is_not_limited():
    on = MULTIPROCESSORS[90]
    assert occupancy(on, 128, None, 0).percent is None
    assert occupancy(on, 128, 32, None).resident is None
    assert not occupancy(on, 128, None, 0, 16).limited_by_barriers


def test_barriers_limit_too():
    fits = occupancy(MULTIPROCESSORS[90], 64, 32, 0, 16)
    assert fits.resident == 4 and fits.limited_by_barriers
    assert not occupancy(MULTIPROCESSORS[90], 64, 32, 0, 1).limited_by_barriers
