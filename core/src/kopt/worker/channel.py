"""Length-prefixed JSON frames over a socket, with file descriptors beside them (no pickles)."""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
import time
from typing import Any

_HEADER = struct.Struct("<IB")
_LIMIT = 64 * 1024 * 1024


class ChannelClosedError(Exception):
    """The other side is gone."""


class ChannelTimeoutError(Exception):
    """No complete frame came in time."""


class Channel:
    """One end of a connection. Sending is safe from several threads; receiving from one."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._send_lock = threading.Lock()

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Send one frame. Raises ChannelClosedError."""
        body = json.dumps(message, separators=(",", ":")).encode()
        head = _HEADER.pack(len(body), len(fds))
        try:
            with self._send_lock:
                if fds:
                    socket.send_fds(self._socket, [head], list(fds))
                else:
                    self._socket.sendall(head)
                self._socket.sendall(body)
        except OSError as error:
            raise ChannelClosedError(str(error)) from error

    def receive(self, timeout: float | None = None) -> tuple[dict[str, Any], list[int]]:
        """Return the next frame and its descriptors; ``timeout`` in seconds covers the whole frame.

        Raises ChannelTimeoutError, ChannelClosedError (also for a frame that is no JSON object or
        larger than 64 MiB: the other side is not to be trusted).
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        head, fds = self._read_head(deadline)
        length, _ = _HEADER.unpack(head)
        if length > _LIMIT:
            raise ChannelClosedError(f"a frame of {length} bytes is over the limit")
        body = self._read(length, deadline)
        try:
            message = json.loads(body)
        except ValueError as error:
            raise ChannelClosedError("a frame is not JSON") from error
        if not isinstance(message, dict):
            raise ChannelClosedError("a frame is not an object")
        return message, fds

    def _wait(self, deadline: float | None) -> None:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready, _, _ = select.select([self._socket], [], [], left)
        if not ready:
            raise ChannelTimeoutError

    def _read_head(self, deadline: float | None) -> tuple[bytes, list[int]]:
        self._wait(deadline)
        try:
            data, fds, _, _ = socket.recv_fds(self._socket, _HEADER.size, 16)
        except OSError as error:
            raise ChannelClosedError(str(error)) from error
        if not data:
            raise ChannelClosedError("end of stream")
        return data + self._read(_HEADER.size - len(data), deadline), list(fds)

    def _read(self, count: int, deadline: float | None) -> bytes:
        parts: list[bytes] = []
        while count:
            self._wait(deadline)
            try:
                data = self._socket.recv(min(count, 1 << 20))
            except OSError as error:
                raise ChannelClosedError(str(error)) from error
            if not data:
                raise ChannelClosedError("end of stream")
            parts.append(data)
            count -= len(data)
        return b"".join(parts)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
