"""The judge's end of a fork server: candidate processes that need not import anything."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from kopt.env import candidate_environment, plain_temporary
from kopt.worker import family
from kopt.worker.channel import Channel, ChannelClosedError, ChannelTimeoutError
from kopt.worker.limits import adopting
from kopt.worker.settings import PluginRef

_FORK_SECONDS = 20.0


def adopts_forks() -> bool:
    """Whether what a fork server forks becomes this process's child."""
    return sys.platform == "linux" and adopting()


class ForkError(Exception):
    """There was no fork: a process must be started in the usual way."""


class Adopted:
    """A process that became this one's child though another forked it; as subprocess.Popen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None
        self._looking = threading.Lock()

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; None while it lives."""
        with self._looking:
            if self._code is None:
                try:
                    ended, status = os.waitpid(self.pid, os.WNOHANG)
                except ChildProcessError:  # somebody else waited for it
                    self._code = 0
                else:
                    self._code = os.waitstatus_to_exitcode(status) if ended else None
            return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code. Raises subprocess.TimeoutExpired after ``timeout`` seconds."""
        end, pause = None if timeout is None else time.monotonic() + timeout, 0.0005
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() >= end:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
        return code


class Forker:
    """A fork server of its own; see kopt.worker.forkserver.

    Only where ``adopts_forks``: else its processes would be no children of this one.
    """

    def __init__(
        self, cache: Path, plugins: Sequence[PluginRef], purpose: str, *, seconds: float = 120.0
    ) -> None:
        """Have it load; ``seconds``: how long that may take."""
        self._seconds = seconds
        self._lock = threading.Lock()
        self._obstacle: str | None = None
        """Why it cannot be used; empty: it can; None: not known yet."""
        self._killed = False
        with family.births:
            family.ensure_open()
            self._home = Path(tempfile.mkdtemp(prefix="kopt-forks-", dir=plain_temporary()))
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this object
            ours, theirs = socket.socketpair()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "kopt.worker.forkserver", str(theirs.fileno())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=self._log,
                stderr=self._log, cwd=self._home, start_new_session=True,
                env=candidate_environment(self._home, cache),
            )  # fmt: skip
            family.living[self._process.pid] = self.kill
        theirs.close()
        self._channel = Channel(ours)
        with suppress(ChannelClosedError):  # it is found unusable
            self._channel.send({"plugins": [list(each) for each in plugins], "purpose": purpose})

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._process.pid

    @property
    def hopeless(self) -> bool:
        """Whether it is known that it cannot be used."""
        return bool(self._obstacle)

    @property
    def obstacle(self) -> str:
        """Wait until it has loaded; return why it cannot be used, or nothing."""
        with self._lock:
            if self._obstacle is None:
                self._obstacle = self._told()
            return self._obstacle

    def _told(self) -> str:
        try:
            answer, _ = self._channel.receive(self._seconds)
        except ChannelTimeoutError:
            return f"it did not load its plugins within {self._seconds:g} s"
        except ChannelClosedError as error:
            return f"it ended: {error}"
        return str(answer.get("obstacle"))

    def give_up(self, obstacle: str) -> None:
        """Have no more processes forked, for a reason."""
        with self._lock:
            self._obstacle = self._obstacle or obstacle

    def fork(
        self, home: Path, environment: Mapping[str, str], memory_limit: int, descriptor: int, log: int
    ) -> Adopted:  # fmt: skip
        """Return a new child of this process; ask while holding ``family.births``.

        ``descriptor`` and ``log``: what it is to serve on and to print to. Raises ForkError.
        """
        if self.obstacle:
            raise ForkError(self._obstacle)
        told = {
            "home": str(home), "environment": dict(environment), "memory_limit": memory_limit,
            "judge": os.getpid(),
        }  # fmt: skip
        with self._lock:
            try:
                self._channel.send(told, (descriptor, log), _FORK_SECONDS)
                answer, _ = self._channel.receive(_FORK_SECONDS)
                return Adopted(int(answer["pid"]))
            except (ChannelClosedError, ChannelTimeoutError) as error:
                self._obstacle = f"it did not fork: {error or 'no answer'}"
                raise ForkError(self._obstacle) from error

    def kill(self) -> None:
        """End the server; what it forked lives on."""
        with family.ending():
            if self._killed:
                return
            self._killed = True
            # Without the lock: a thread that waits for the server to load holds it.
            self._obstacle = self._obstacle or "it was ended"
            family.end(self._process.pid)
            self._process.wait()
            family.living.pop(self._process.pid, None)
            self._channel.close()
            self._log.close()
            shutil.rmtree(self._home, ignore_errors=True)
