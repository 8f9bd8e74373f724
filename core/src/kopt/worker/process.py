"""The judge's end of one candidate process: orders, deadlines, death and its cause."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from kopt.env import candidate_environment, plain_temporary
from kopt.errors import CandidateError, WorkerError
from kopt.model.record import Record
from kopt.model.verification import Status
from kopt.worker import family
from kopt.worker.channel import Channel, ChannelClosedError, ChannelTimeoutError
from kopt.worker.forking import Adopted, Forker, ForkError

T = TypeVar("T", bound=Record)
_OUT_OF_MEMORY = re.compile(r"bad_alloc|MemoryError|out of memory|Cannot allocate memory", re.I)
_LOG_TAIL = 4000
_BEGIN_SECONDS = 10.0
"""To hand an order over, which a socket's buffer takes at once."""
_SOUND = {Status.CORRECT, Status.COMPILE_ERROR, Status.PARSE_ERROR, Status.UNSUPPORTED}
"""After any other end the process, or its device context, may be broken or tampered with."""


class CandidateProcess:
    """A child in a process group of its own, with an environment of its own."""

    def __init__(
        self, *, cache: Path, memory_limit: int, environment: Mapping[str, str] | None = None,
        wrapper: Sequence[str] = (), forker: Forker | None = None, confined: bool = False,
    ) -> None:  # fmt: skip
        """``environment``: variables beyond the usual; ``wrapper``: a command that starts it.

        ``forker``: what forks it, where it needs neither and that is possible. ``confined``: it may
        write to its home and to the cache alone, where the system can enforce that.
        """
        self._killed = False
        self._end: CandidateError | None = None
        self._number = 0
        self._begun = ""
        """The order whose answer has not been received yet; empty: none."""
        self.attached: set[int] = set()
        self.uses = 0
        self.tainted = False
        """A failure may have left the process or its device context broken."""
        if wrapper or environment or (forker is not None and forker.obstacle):
            forker = None
        with family.births:
            family.ensure_open()
            given = environment or {}
            self._start(cache, memory_limit, given, wrapper, forker, confined=confined)
            family.living[self.pid] = self.kill

    def _start(
        self, cache: Path, memory_limit: int, environment: Mapping[str, str],
        wrapper: Sequence[str], forker: Forker | None, *, confined: bool,
    ) -> None:  # fmt: skip
        self.home = Path(tempfile.mkdtemp(prefix="kopt-candidate-", dir=plain_temporary()))
        # Without a name: a candidate could put a pipe or a link in the place of a named file.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this object
        variables = {**candidate_environment(self.home, cache, confined=confined), **environment}
        ours, theirs = socket.socketpair()
        descriptor = theirs.fileno()
        forked = None
        if forker is not None:
            with suppress(ForkError):
                forked = forker.fork(
                    self.home, variables, memory_limit, descriptor, self._log.fileno()
                )
        self.forked = forked is not None
        self._process: subprocess.Popen[bytes] | Adopted = forked or subprocess.Popen(
            [*wrapper, sys.executable, "-P", "-m", "kopt.worker.candidate", str(descriptor),
             str(memory_limit)],
            pass_fds=[descriptor], stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
            cwd=self.home, start_new_session=True, env=variables,
        )  # fmt: skip
        theirs.close()
        self._channel = Channel(ours, _pidfd(self.pid))

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
        killed) or has died; every later order to a dead one raises what it died of. Raises
        WorkerError where kopt itself failed inside it.
        """
        if self._begun:
            self.finish(timeout)
        return self._remembered(lambda: self._ordered(op, timeout, fds, fields))

    def begin(self, op: str, **fields: Any) -> None:
        """Give an order whose answer ``finish`` returns; until then no other one is given."""
        self._number = secrets.randbits(53)
        self._begun = op
        with suppress(ChannelClosedError, ChannelTimeoutError):  # finish says so
            self._channel.send({"op": op, "n": self._number, **fields}, (), _BEGIN_SECONDS)

    def finish(self, timeout: float) -> dict[str, Any]:
        """Return the answer to the order that was begun. Raises as ``order`` does."""
        op, self._begun = self._begun, ""
        return self._remembered(lambda: self._answered(op, timeout))

    def _remembered(self, answer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return an answer, or raise what the process died of, then and from then on."""
        if self._end is not None:
            raise CandidateError(self._end.status, self._end.detail)
        try:
            return answer()
        except CandidateError as error:
            if self._killed:
                self._end = error
            raise

    def _ordered(
        self, op: str, timeout: float, fds: tuple[int, ...], fields: dict[str, Any]
    ) -> dict[str, Any]:
        self._number = secrets.randbits(53)  # not to be guessed before the order is given
        try:
            if self.alive and self._channel.waiting():
                self._refuse_unasked(op)
            self._channel.send({"op": op, "n": self._number, **fields}, fds, timeout)
        except ChannelTimeoutError:
            raise self._hung(op, timeout) from None
        except ChannelClosedError as error:
            raise self._death(op, str(error)) from error
        return self._answered(op, timeout)

    def _answered(self, op: str, timeout: float) -> dict[str, Any]:
        try:
            reply, stray = self._channel.receive(timeout)
        except ChannelTimeoutError:
            raise self._hung(op, timeout) from None
        except ChannelClosedError as error:
            raise self._death(op, str(error)) from error
        for fd in stray:
            os.close(fd)
        return self._checked(op, reply)

    def _hung(self, op: str, timeout: float) -> CandidateError:
        self.kill()
        return CandidateError(
            Status.HANG, f"no answer to {op!r} within {timeout:g} s; its process was killed"
        )

    def _refuse_unasked(self, op: str) -> None:
        try:  # the end of a connection looks the same until it is read, and raises here
            _, stray = self._channel.receive(1.0)
        except ChannelTimeoutError:
            stray = []  # a part of a frame
        for fd in stray:
            os.close(fd)
        self.kill()
        raise CandidateError(Status.CRASHED, f"it answered {op!r} before it was asked: forged")

    def _checked(self, op: str, reply: dict[str, Any]) -> dict[str, Any]:
        if reply.get("n") != self._number:
            self.kill()
            raise CandidateError(
                Status.CRASHED, f"the answer to {op!r} is not to this order: forged"
            )
        if reply.get("ok") is True:
            return reply
        status, detail = str(reply.get("status")), str(reply.get("detail"))
        if status == "infrastructure-error" or status not in set(Status):
            self.tainted = True  # whatever failed in there may fail the next candidate too
            raise WorkerError(detail)
        if status == Status.CORRECT:  # a failure that calls itself a success
            raise self.forged(op)
        self.judged(Status(status))
        raise CandidateError(Status(status), detail)

    def judged(self, status: Status) -> None:
        """Note how a candidate ended; after a bad end the process is not used again."""
        self.tainted |= status not in _SOUND

    def forged(self, op: str) -> CandidateError:
        """Kill the process and return what its malformed answer costs the candidate."""
        self.kill()
        self._end = CandidateError(Status.CRASHED, f"the answer to {op!r} is malformed: forged")
        return self._end

    def claim(self, op: str, reply: dict[str, Any], field: str, kind: type[T]) -> T:
        """Return a record that an answer must hold. Raises CandidateError."""
        try:
            return kind.model_validate(reply.get(field))
        except ValidationError:
            raise self.forged(op) from None

    def _death(self, op: str, reason: str) -> CandidateError:
        """Explain the end of the process; its output colours the words, never the verdict."""
        try:
            code = self._process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            code = None  # it closed its end, or broke the form of an answer, and lives on
        tail = self.log_tail()
        self.kill()
        return CandidateError(*_cause(code, op, reason, tail))

    def log_tail(self) -> str:
        """Return the end of what the process printed."""
        try:
            size = os.fstat(self._log.fileno()).st_size
            tail = os.pread(self._log.fileno(), _LOG_TAIL, max(0, size - _LOG_TAIL))
        except (OSError, ValueError):  # the process was killed and its log closed
            return ""
        return tail.decode(errors="replace").strip()

    def kill_descendants(self) -> bool:
        """Kill whatever a candidate started and left running; return whether there was any."""
        found = family.kill_all(family.descendants(self._process.pid))
        return family.reap_orphans() or found

    def end(self, seconds: float) -> str:
        """Hang up, so that the process ends by itself, and kill it where it has not by then.

        Returns the end of what it printed.
        """
        if self._killed:
            return ""
        self._channel.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        tail = self.log_tail()
        self.kill()
        return tail

    def kill(self) -> None:
        """Kill the process, its group and every descendant, and remove its home."""
        with family.ending():
            if self._killed:
                return  # its number may be another process's by now
            self._killed = True
            family.end(self._process.pid)
            self._process.wait()
            family.living.pop(self._process.pid, None)
            family.reap_orphans()
            self._channel.close()
            self._log.close()
            shutil.rmtree(self.home, ignore_errors=True)


def _pidfd(pid: int) -> int | None:
    """Return a descriptor that tells of a process's end; None where the system has none."""
    try:
        return os.pidfd_open(pid) if sys.platform == "linux" else None
    except OSError:
        return None


def _cause(code: int | None, op: str, reason: str, tail: str) -> tuple[Status, str]:
    said = f"; it last printed: {tail[-600:]}" if tail else ""
    if code is None:
        return Status.CRASHED, f"its process broke the connection during {op!r}: {reason}{said}"
    if code >= 0:
        status = Status.OOM if code and _OUT_OF_MEMORY.search(tail) else Status.CRASHED
        return status, f"its process exited with code {code} during {op!r}{said}"
    name = signal.Signals(-code).name
    if -code in {signal.SIGSEGV, signal.SIGBUS}:
        return Status.ILLEGAL_ACCESS, f"its process died of {name} during {op!r}{said}"
    if -code == signal.SIGKILL or _OUT_OF_MEMORY.search(tail):
        return (
            Status.OOM,
            f"its process died of {name} during {op!r}, most likely out of memory{said}",
        )
    return Status.CRASHED, f"its process died of {name} during {op!r}{said}"
