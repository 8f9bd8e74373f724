"""Where a run goes: by what is asked for, by its languages, by the GPUs that nvidia-smi lists."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kopt.errors import ConfigError, DeviceError
from kopt.machine import (
    candidate_memory_limit,
    choose_device,
    gpu_clocks,
    gpu_names,
    memory_bytes,
    refuse_untimeable,
    usable_cpus,
)
from kopt.model.device import Clocks


@pytest.fixture
def no_gpu(smi: Callable[[str], None]) -> None:
    smi("echo 'NVIDIA-SMI has failed' >&2; exit 9")


@pytest.fixture
def two_gpus(smi: Callable[[str], None]) -> None:
    smi("echo 'NVIDIA H100'; echo 'NVIDIA L4'")


@pytest.mark.usefixtures("two_gpus")
def test_gpus_are_those_that_nvidia_smi_lists() -> None:
    assert gpu_names() == ("NVIDIA H100", "NVIDIA L4")
    assert choose_device(None) == "cuda"
    assert choose_device("cuda", ["triton"]) == "cuda"
    assert choose_device("cpu") == "cpu"


@pytest.mark.usefixtures("two_gpus")
def test_cpp_runs_on_the_cpu_of_a_machine_with_a_gpu() -> None:
    assert choose_device(None, ["cpp", "torch"]) == "cpu"
    with pytest.raises(ConfigError, match=r"cpp runs on the CPU.*--device cpu"):
        choose_device("cuda", ["cpp"])
    with pytest.raises(ConfigError, match="cannot be compared"):
        choose_device(None, ["cpp", "triton"])


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_the_device_is_the_cpu() -> None:
    assert gpu_names() == ()
    assert choose_device(None) == "cpu"
    with pytest.raises(DeviceError, match=r"no NVIDIA GPU.*kopt doctor"):
        choose_device("cuda")


def test_a_gpu_language_is_not_timed_on_the_cpu() -> None:
    with pytest.raises(DeviceError, match=r"kopt verify.*--target sm_90.*--backend cpp"):
        refuse_untimeable("triton", "cpu")
    with pytest.raises(DeviceError, match=r"GPU only.*kopt verify.*--target sm_90.*--backend cpp"):
        refuse_untimeable("cuda", "cpu")
    refuse_untimeable("triton", "cuda")
    refuse_untimeable("cpp", "cpu")


def test_a_cap_on_memory_is_for_the_cpu_only() -> None:
    assert candidate_memory_limit("cuda") == 0
    assert candidate_memory_limit("cpu") > 1 << 28
    assert usable_cpus() >= 1


@pytest.mark.parametrize(("said", "found"), [("143771 MiB", 143771 << 20), ("[N/A]", 0), ("", 0)])
def test_memory_is_as_the_driver_tells_it(
    smi: Callable[[str], None], said: str, found: int
) -> None:
    """A GPU that shares the machine's memory has none of its own to tell of."""
    smi(f"echo '{said}'")
    assert memory_bytes("cuda") == found
    assert memory_bytes("cpu") > 0


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("1980, 3201, 1980, 41, 612.35",
         Clocks(sm_mhz=1980, memory_mhz=3201, most_sm_mhz=1980, celsius=41, watts=612.35)),
        ("1980, [N/A], 1980, 41, [N/A]", Clocks(sm_mhz=1980, most_sm_mhz=1980, celsius=41)),
        ("[N/A], [N/A], [N/A], [N/A], [N/A]", None),
        ("a word", None),
    ],
)  # fmt: skip
def test_clocks_are_as_the_driver_tells_them(
    smi: Callable[[str], None], said: str, found: Clocks | None
) -> None:
    smi(f"echo '{said}'")
    assert gpu_clocks() == found


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_there_are_no_clocks() -> None:
    assert gpu_clocks() is None
