"""The fork server: a process that has loaded plugins, whose children need not (``python -m``).

Importing torch takes a second to five, a fork some 20 ms. No candidate's code ever runs in the server
itself. Each child is forked twice and so becomes the judge's own child, which waits for it, kills
it and learns what it died of as of any other process that it started.
"""

from __future__ import annotations

import gc
import os
import select
import socket
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from kopt.env import live_in
from kopt.hooks import Hooks
from kopt.worker import candidate
from kopt.worker.channel import Channel, ChannelClosedError
from kopt.worker.limits import die_with_parent

_ADOPTION_SECONDS = 10.0
_HARMLESS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/random", "/dev/tty",
             "/dev/pts/", "/dev/shm/")  # fmt: skip


def obstacle() -> str:
    """Return why what this process forks would not work; empty: it would.

    A thread is not forked with the rest, and whatever waits for it would wait for ever. A device
    that a process has opened (CUDA's driver) cannot be used by its children.
    """
    pid = os.fork()  # what ends its threads where there is a fork, as OpenBLAS does, ends them now
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    threads = len([*Path("/proc/self/task").iterdir()])
    if threads > 1:
        return f"{threads - 1} threads were left running by what was imported"
    for each in Path("/proc/self/fd").iterdir():
        try:
            name = str(each.readlink())
        except OSError:  # the listing's own
            continue
        if name.startswith("/dev/") and not name.startswith(_HARMLESS):
            return f"what was imported opened {name}"
    return ""


class ForkServer:
    """Loads plugins once, and forks on order."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def serve(self) -> None:
        """Load, say whether that went well, and fork until the judge hangs up."""
        order, _ = self._channel.receive()
        hooks = None
        try:
            hooks = candidate.load_plugins(order["plugins"], order["purpose"])
            obstructed = obstacle()
        except BaseException:  # noqa: BLE001 - whoever loads them without a server is told
            obstructed = traceback.format_exc()[-2000:]
        self._channel.send({"obstacle": obstructed})
        while hooks is not None and not obstructed:
            request, fds = self._channel.receive()
            self._channel.send({"pid": self._fork(hooks, request, fds)})
            for fd in fds:
                os.close(fd)

    def _fork(self, hooks: Hooks, request: dict[str, Any], fds: list[int]) -> int:
        """Return the id of a process whose parent has ended: the judge adopts it.

        It leads a group of its own by then, by which it can be killed.
        """
        here, there = os.pipe()
        between = os.fork()
        if not between:
            if os.fork():
                os._exit(0)
            os.setsid()
            os.write(there, str(os.getpid()).encode())
            os.close(here)
            os.close(there)
            self._live(hooks, request, fds)
        os.close(there)
        try:
            os.waitpid(between, 0)
            return int(os.read(here, 32))
        finally:
            os.close(here)

    def _live(self, hooks: Hooks, request: dict[str, Any], fds: list[int]) -> NoReturn:
        """Be a candidate process."""
        try:
            self._channel.close()
            descriptor, log = fds
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
            os.chdir(request["home"])
            live_in(request["environment"])
            tempfile.tempdir = None  # what was found for the server
            _draw_anew()
            _await_adoption(request["judge"], descriptor)
            gc.enable()
            candidate.main(descriptor, request["memory_limit"], hooks)
        except BaseException:  # noqa: BLE001 - it must not go on as a second server
            traceback.print_exc()
            _end(1)
        _end(0)


def _draw_anew() -> None:
    """Have global generators that were seeded at import differ between the children."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _await_adoption(judge: int, descriptor: int) -> None:
    """Wait to become the judge's child, and end if it has gone: it hung up ``descriptor`` then."""
    end = time.monotonic() + _ADOPTION_SECONDS
    line = select.poll()
    line.register(descriptor, 0)  # what is always told: that the other end was closed
    while os.getppid() != judge:
        if line.poll(0) or time.monotonic() > end:
            os._exit(1)
        time.sleep(0.0002)


def _end(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main(descriptor: int) -> None:
    """Serve on an inherited socket until the judge is gone."""
    die_with_parent()
    gc.disable()  # a collection would write to what is shared with the children
    try:
        ForkServer(Channel(socket.socket(fileno=descriptor))).serve()
    except ChannelClosedError:
        return


if __name__ == "__main__":
    main(int(sys.argv[1]))
