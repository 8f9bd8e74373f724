"""A process that has torch already and forks a fresh one for each request: `python -m rivals.nursery`."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

HERE = Path(__file__).resolve().parents[1]
"""What must be on the path of a process that imports this package."""
_PRELOADED = ("torch", "rivals.kernelbench", "rivals.kernelagent", "rivals.robust_kbench", "rivals.autokernel")  # fmt: skip
_POLL_SECONDS = 0.01
_FILES = 64
_own = threading.local()
_open: list[subprocess.Popen[str]] = []


def run(folder: Path, target: str, arguments: list[str], log: Path, limit: float) -> int | None:
    """Run a script of the folder, or the main() of a module, in a fresh process with a limit (s).

    What it prints goes to ``log``. Returns its exit code, negative for a signal, or None where it
    was killed at the limit; whatever it started is killed too.
    """
    nursery = _nursery()
    request = {
        "folder": str(folder), "target": target, "arguments": arguments, "log": str(log),
        "limit": limit,
    }  # fmt: skip
    if nursery.stdin is None or nursery.stdout is None:
        raise RuntimeError("the nursery has no pipes")
    nursery.stdin.write(json.dumps(request) + "\n")
    nursery.stdin.flush()
    answer = nursery.stdout.readline()
    if not answer:
        raise RuntimeError(f"the nursery ended while it ran {target} in {folder}")
    code: int | None = json.loads(answer)
    return code


def _nursery() -> subprocess.Popen[str]:
    """Return this thread's own; it ends with its standard input, and so with this process."""
    process: subprocess.Popen[str] | None = getattr(_own, "process", None)
    if process not in _open:
        kept = {name: value for name, value in os.environ.items() if name != "CI"}
        process = _own.process = subprocess.Popen(
            [sys.executable, "-m", "rivals.nursery"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env={**kept, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        _open.append(process)
    return process


def close() -> None:
    """End the nurseries of all threads; none may be at work."""
    while _open:
        _open.pop().communicate()


def main() -> None:
    """Serve requests, one at a time, until standard input ends; no torch operator runs here."""
    for name in _PRELOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(request)
        print(json.dumps(_ended(child, request["limit"])), flush=True)


def _ended(child: int, limit: float) -> int | None:
    deadline = time.monotonic() + limit
    done = status = 0
    while not done and time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        time.sleep(_POLL_SECONDS)
    with contextlib.suppress(ProcessLookupError):  # nothing of its session is left
        os.killpg(child, signal.SIGKILL)
    if not done:
        os.waitpid(child, 0)
        return None
    return os.waitstatus_to_exitcode(status)


def _become(request: dict[str, Any]) -> NoReturn:
    """Be the process that was asked for, and exit as Python would."""
    os.setsid()
    os.chdir(request["folder"])
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    null = os.open(os.devnull, os.O_RDONLY)
    for file, standard in ((null, 0), (log, 1), (log, 2)):
        os.dup2(file, standard)
    os.closerange(3, _FILES)
    sys.argv = [request["target"], *request["arguments"]]
    sys.path.insert(0, request["folder"])
    code = 1
    try:
        if request["target"].endswith(".py"):
            runpy.run_path(request["target"], run_name="__main__")
        else:
            importlib.import_module(request["target"]).main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does: a traceback and 1
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main()
