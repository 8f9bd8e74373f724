"""Which GPUs a suite is spread over, and which one has the next problem."""

from __future__ import annotations

import re
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from kopt.errors import ConfigError, DeviceError, WorkerError
from kopt.reporter import Silent
from kopt.suites.beside import Beside
from kopt.suites.gpus import Sharing, parse_gpus, showing
from kopt.suites.records import SuiteSettings
from kopt.testing.problems import vector_add


@pytest.fixture
def three(smi: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    smi("echo 'NVIDIA H100'; echo 'NVIDIA L4'; echo 'NVIDIA H100'")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("three")
def test_gpus_of_one_kind_are_named_by_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_gpus("0, 2") == ("0", "2")
    assert parse_gpus("1") == ("1",)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert parse_gpus("0,2") == ("0", "2")


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("text", ["", "a", "0,", "-1", "0,0", "0 2", "1.5"])
def test_what_is_no_list_of_numbers_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"--gpus {re.escape(text)}: give different numbers"):
        parse_gpus(text)


@pytest.mark.usefixtures("three")
def test_gpus_that_are_not_there_or_hidden_or_of_another_kind_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(DeviceError, match=r"no GPU 3 \(nvidia-smi lists 3, from 0\)"):
        parse_gpus("0,3")
    with pytest.raises(
        ConfigError, match=r"0 \(NVIDIA H100\) and 1 \(NVIDIA L4\) are of different"
    ):
        parse_gpus("0,1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with pytest.raises(ConfigError, match="CUDA_VISIBLE_DEVICES=1 hides GPU 0"):
        parse_gpus("0")


def test_without_a_gpu_none_is_there(smi: Callable[[str], None]) -> None:
    smi("exit 9")
    with pytest.raises(DeviceError, match=r"no GPU 0 \(nvidia-smi lists none\)"):
        parse_gpus("0")


def test_each_problem_has_the_gpu_that_has_the_fewest() -> None:
    sharing = Sharing(("0", "2"))
    with ExitStack() as held:
        lent = [held.enter_context(sharing.one()) for _ in range(4)]
        assert Counter(each["CUDA_VISIBLE_DEVICES"] for each in lent) == {"0": 2, "2": 2}
        with sharing.one() as fifth, sharing.one() as sixth:
            assert {fifth["CUDA_VISIBLE_DEVICES"], sixth["CUDA_VISIBLE_DEVICES"]} == {"0", "2"}
    with sharing.one() as first:
        assert first == showing("0")


def test_a_gpu_comes_back_where_a_problem_fails() -> None:
    sharing = Sharing(("0", "1"))
    for _ in range(3):
        with pytest.raises(KeyError), sharing.one():
            raise KeyError
    with sharing.one() as one, sharing.one() as other:
        assert one != other


def test_threads_do_not_get_the_same() -> None:
    sharing, barrier = Sharing([str(n) for n in range(8)]), threading.Barrier(8)
    seen: list[str] = []

    def work() -> None:
        with sharing.one() as variables:
            seen.append(variables["CUDA_VISIBLE_DEVICES"])
            barrier.wait(10.0)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [str(n) for n in range(8)]


def test_the_process_of_a_problem_sees_its_gpu_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    seen = "it sees $CUDA_VISIBLE_DEVICES by $CUDA_DEVICE_ORDER"
    python.write_text(f'#!/bin/sh\ncat > /dev/null\necho "{{\\"error\\": \\"{seen}\\"}}"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    beside = Beside(lambda line: None, 2, ("3",))
    with pytest.raises(WorkerError, match="it sees 3 by PCI_BUS_ID"):
        beside(vector_add(), SuiteSettings(), tmp_path, None, Silent())


def test_no_gpus_leave_the_environment_alone() -> None:
    with Sharing(()).one() as variables:
        assert variables == {}
