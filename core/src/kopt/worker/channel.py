"""Length-prefixed JSON frames over a socket, with file descriptors beside them (no pickles)."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_HEADER = struct.Struct("<IB")
MOST_BYTES = 64 * 1024 * 1024
MOST_DESCRIPTORS = 16


class ChannelClosedError(Exception):
    """The other side is gone, or does not keep to the form of a frame."""


class ChannelTimeoutError(Exception):
    """No complete frame came, or was taken, in time."""


class Channel:
    """One end of a connection. Sending is safe from several threads; receiving from one."""

    def __init__(self, connection: socket.socket, peer: int | None = None) -> None:
        """``peer``: a pidfd of the other side, whose end is noticed even where a child of it
        keeps the connection open. The channel closes it."""
        self._socket = connection
        self._peer = peer
        self._send_lock = threading.Lock()

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def send(
        self, message: dict[str, Any], fds: tuple[int, ...] = (), timeout: float | None = None
    ) -> None:
        """Send one frame; ``timeout`` in seconds covers the whole frame.

        Raises ChannelTimeoutError where the other side does not read, ChannelClosedError.
        """
        deadline = _deadline(timeout)
        body = json.dumps(message, separators=(",", ":")).encode()
        head = _HEADER.pack(len(body), len(fds))
        with self._send_lock, _as_closed():
            if fds:
                self._wait(select.POLLOUT, deadline)
                socket.send_fds(self._socket, [head], list(fds))
            else:
                self._write(head, deadline)
            self._write(body, deadline)

    def _write(self, data: bytes, deadline: float | None) -> None:
        view = memoryview(data)
        while view:
            self._wait(select.POLLOUT, deadline)
            try:
                view = view[self._socket.send(view, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                continue  # another frame filled the buffer meanwhile

    def waiting(self) -> bool:
        """Whether something has come that was not received yet (or the other side hung up)."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def receive(self, timeout: float | None = None) -> tuple[dict[str, Any], list[int]]:
        """Return the next frame and its descriptors; ``timeout`` in seconds covers the whole frame.

        Raises ChannelTimeoutError, ChannelClosedError (also for a frame that is no JSON object,
        larger than 64 MiB or without the descriptors that it announces: the other side is not to
        be trusted).
        """
        deadline = _deadline(timeout)
        fds: list[int] = []
        try:
            with _as_closed():
                return self._frame(deadline, fds), fds
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise

    def _frame(self, deadline: float | None, fds: list[int]) -> dict[str, Any]:
        self._wait(select.POLLIN, deadline)
        head, received, _, _ = socket.recv_fds(self._socket, _HEADER.size, MOST_DESCRIPTORS)
        fds += received
        if not head:
            raise ChannelClosedError("end of stream")
        length, announced = _HEADER.unpack(head + self._read(_HEADER.size - len(head), deadline))
        if length > MOST_BYTES:
            raise ChannelClosedError(f"a frame of {length} bytes is over the limit")
        if announced != len(fds):
            raise ChannelClosedError(f"{len(fds)} of {announced} descriptors came with a frame")
        return _object(self._read(length, deadline))

    def _read(self, count: int, deadline: float | None) -> bytes:
        parts: list[bytes] = []
        while count:
            self._wait(select.POLLIN, deadline)
            data = self._socket.recv(min(count, 1 << 20))
            if not data:
                raise ChannelClosedError("end of stream")
            parts.append(data)
            count -= len(data)
        return b"".join(parts)

    def _wait(self, event: int, deadline: float | None) -> None:
        """Wait until the socket can be read or written; poll() has no limit on descriptors."""
        if self._socket.fileno() < 0:
            raise ChannelClosedError("this end was closed")
        poll = select.poll()
        poll.register(self._socket, event)
        if self._peer is not None:
            poll.register(self._peer, select.POLLIN)
        left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1e3
        ready = {fd for fd, _ in poll.poll(left)}
        if not ready:
            raise ChannelTimeoutError
        if self._socket.fileno() not in ready:
            raise ChannelClosedError("the other process has ended")

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
        if self._peer is not None:
            os.close(self._peer)
            self._peer = None


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _object(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ChannelClosedError("a frame is not JSON") from error
    if not isinstance(message, dict):
        raise ChannelClosedError("a frame is not an object")
    return message


@contextmanager
def _as_closed() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ChannelClosedError(str(error)) from error
