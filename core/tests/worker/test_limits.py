"""What the operating system enforces on worker processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux enforces it")


def run(code: str) -> subprocess.CompletedProcess[str]:
    script = "import os, resource, sys\nfrom kopt.worker.limits import *\n" + code
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30
    )


def test_private_memory_is_capped() -> None:
    done = run("limit_resources(512 << 20)\nbytearray(1 << 30)")
    assert "MemoryError" in done.stderr
    assert run("limit_resources(512 << 20)\nbytearray(1 << 20)").returncode == 0
    assert run("limit_resources(0)\nbytearray(1 << 30)").returncode == 0


def test_no_core_dumps_and_first_in_line_for_the_oom_killer() -> None:
    done = run(
        "limit_resources(0)\n"
        "print(resource.getrlimit(resource.RLIMIT_CORE), open('/proc/self/oom_score_adj').read())"
    )
    assert done.stdout.split() == ["(0,", "0)", "1000"]


def test_an_endless_printer_is_stopped(tmp_path: pytest.TempPathFactory) -> None:
    done = run(
        "import kopt.worker.limits as limits\n"
        "limits._LARGEST_FILE = 1 << 20\n"
        "limit_resources(0)\n"
        f"file = open({str(tmp_path)!r} + '/log', 'wb', buffering=0)\n"
        "for _ in range(100): file.write(bytes(1 << 16))"
    )
    assert "File too large" in done.stderr


def test_as_many_files_as_the_hard_limit_allows() -> None:
    done = run(
        "soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (min(64, hard), hard))\n"
        "allow_many_files()\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard))"
    )
    assert done.stdout == "True\n"


def test_dies_with_its_parent() -> None:
    parent = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; "
        "from kopt.worker.limits import die_with_parent; die_with_parent(); "
        "print(1, flush=True); time.sleep(60)'], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while psutil.pid_exists(child) and time.monotonic() < deadline:
        if psutil.Process(child).status() == psutil.STATUS_ZOMBIE:
            break
        time.sleep(0.02)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
