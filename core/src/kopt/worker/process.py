"""The judge's end of one candidate process: orders, deadlines, death and its cause."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import psutil

from kopt.env import POOLED_ALLOCATOR, candidate_environment
from kopt.errors import CandidateError, WorkerError
from kopt.model.verification import Status
from kopt.worker.limits import adopting
from kopt.worker.channel import Channel, ChannelClosedError, ChannelTimeoutError

_OUT_OF_MEMORY = re.compile(r"bad_alloc|MemoryError|out of memory|Cannot allocate memory", re.I)
_LOG_TAIL = 4000
_TAINTING = {Status.ILLEGAL_ACCESS, Status.LAUNCH_FAILED, Status.CRASHED, Status.OOM}


class CandidateProcess:
    """A child in a process group of its own, with an environment of its own."""

    def __init__(self, *, cache: Path, memory_limit: int, pooled: bool = False) -> None:
        """``pooled``: the C allocator keeps freed pages (see docs/explanation/measurement)."""
        self.home = Path(tempfile.mkdtemp(prefix="kopt-candidate-"))
        self._log_path = self.home / "output.log"
        ours, theirs = socket.socketpair()
        environment = candidate_environment(self.home, cache)
        if pooled:
            environment |= POOLED_ALLOCATOR
        with self._log_path.open("wb") as log, _family_lock:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "kopt.worker.candidate", str(theirs.fileno()),
                 str(memory_limit)],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.home, env=environment, start_new_session=True,
            )  # fmt: skip
            _living.add(self._process.pid)
        theirs.close()
        self._channel = Channel(ours)
        self._number = 0
        self.attached: set[int] = set()
        self.uses = 0
        self.tainted = False
        """A failure may have left the process or its device context broken."""

    @property
    def pid(self) -> int:
        """Process id, which is also its group's."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can take orders."""
        return self._process.poll() is None

    def order(
        self, op: str, timeout: float, fds: tuple[int, ...] = (), **fields: Any
    ) -> dict[str, Any]:
        """Give an order and return its answer; ``timeout`` in seconds starts now.

        Raises CandidateError where the answer is a failure, or where the process hangs (it is
        killed) or has died. Raises WorkerError where kopt itself failed inside it.
        """
        self._number += 1
        try:
            self._channel.send({"op": op, "n": self._number, **fields}, fds)
            reply, stray = self._channel.receive(timeout)
        except ChannelTimeoutError:
            self.kill()
            raise CandidateError(
                Status.HANG, f"no answer to {op!r} within {timeout:g} s; its process was killed"
            ) from None
        except ChannelClosedError as error:
            raise self._death(op) from error
        for fd in stray:
            os.close(fd)
        return self._checked(op, reply)

    def _checked(self, op: str, reply: dict[str, Any]) -> dict[str, Any]:
        if reply.get("n") != self._number:
            self.kill()
            raise CandidateError(Status.CRASHED, f"the answer to {op!r} is not to this order: forged")
        if reply.get("ok") is True:
            return reply
        status, detail = str(reply.get("status")), str(reply.get("detail"))
        if status == "infrastructure-error" or status not in set(Status):
            raise WorkerError(detail)
        self.tainted |= Status(status) in _TAINTING
        raise CandidateError(Status(status), detail)

    def _death(self, op: str) -> CandidateError:
        """Explain the end of the process; its output colours the words, never the verdict."""
        try:
            code = self._process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            code = None  # it closed its end and lives on
        tail = self.log_tail()
        self.kill()
        return CandidateError(*_cause(code, op, tail))

    def log_tail(self) -> str:
        """Return the end of what the process printed."""
        try:
            with self._log_path.open("rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - _LOG_TAIL))
                return log.read().decode(errors="replace").strip()
        except OSError:
            return ""

    def kill_descendants(self) -> None:
        """Kill whatever a candidate started and left running; the process itself stays."""
        _kill_all(_descendants(self._process.pid))
        reap_orphans()

    def kill(self) -> None:
        """Kill the process, its group and every descendant, and remove its home."""
        family = _descendants(self._process.pid)
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # already gone
        _kill_all(family)
        self._process.wait()
        _living.discard(self._process.pid)
        reap_orphans()
        self._channel.close()
        shutil.rmtree(self.home, ignore_errors=True)


_living: set[int] = set()
"""Candidate processes that are meant to live."""
_family_lock = threading.Lock()
"""Held while a child is started or orphans are looked for."""


def _cause(code: int | None, op: str, tail: str) -> tuple[Status, str]:
    said = f"; it last printed: {tail[-600:]}" if tail else ""
    if code is None:
        return Status.CRASHED, f"its process closed the connection during {op!r}{said}"
    if code >= 0:
        status = Status.OOM if code and _OUT_OF_MEMORY.search(tail) else Status.CRASHED
        return status, f"its process exited with code {code} during {op!r}{said}"
    name = signal.Signals(-code).name
    if -code in {signal.SIGSEGV, signal.SIGBUS}:
        return Status.ILLEGAL_ACCESS, f"its process died of {name} during {op!r}{said}"
    if -code == signal.SIGKILL or _OUT_OF_MEMORY.search(tail):
        return Status.OOM, f"its process died of {name} during {op!r}, most likely out of memory{said}"
    return Status.CRASHED, f"its process died of {name} during {op!r}{said}"


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _kill_all(processes: list[psutil.Process]) -> None:
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(processes, timeout=2.0)


def reap_orphans() -> None:
    """Kill children of this process that no living candidate process accounts for.

    The judge adopts what a killed candidate left behind, in whatever session it hid. Does nothing
    in a process that adopts no orphans: its other children are none of our business.
    """
    if not adopting():
        return
    with _family_lock:
        orphans = [child for child in psutil.Process().children() if child.pid not in _living]
    for orphan in orphans:
        _kill_all([*_descendants(orphan.pid), orphan])
