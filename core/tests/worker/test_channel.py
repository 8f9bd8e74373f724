"""The channel between judge and candidate: whole frames or a clean refusal."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kopt.worker.channel import (
    MOST_BYTES,
    Channel,
    ChannelClosedError,
    ChannelTimeoutError,
)

Pair = tuple[Channel, socket.socket]

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A channel, and the bare socket of a peer that may write what it likes."""
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    yield channel, theirs
    channel.close()
    theirs.close()


def frame(body: bytes, fds: int = 0, length: int | None = None) -> bytes:
    return struct.pack("<IB", len(body) if length is None else length, fds) + body


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=st.dictionaries(st.text(), values))
def test_what_is_sent_is_received(message: dict[str, Any]) -> None:
    ours, theirs = socket.socketpair()
    sender, receiver = Channel(ours), Channel(theirs)
    try:
        sender.send(message)
        assert receiver.receive(5.0) == (json.loads(json.dumps(message)), [])
    finally:
        sender.close()
        receiver.close()


def test_a_frame_larger_than_the_socket_buffer(pair: Pair) -> None:
    channel, theirs = pair
    message = {"text": "x" * (8 << 20)}
    thread = threading.Thread(target=channel.send, args=(message,))
    thread.start()
    assert Channel(theirs).receive(10.0)[0] == message
    thread.join()


def test_frames_of_several_threads_do_not_mix(pair: Pair) -> None:
    channel, theirs = pair
    threads = [
        threading.Thread(target=channel.send, args=({"who": who, "text": str(who) * 300_000},))
        for who in range(6)
    ]
    for thread in threads:
        thread.start()
    receiver = Channel(theirs)
    got = [receiver.receive(10.0)[0] for _ in threads]
    assert sorted(message["who"] for message in got) == list(range(6))
    assert all(message["text"] == str(message["who"]) * 300_000 for message in got)
    for thread in threads:
        thread.join()


def test_descriptors_come_along(pair: Pair) -> None:
    channel, theirs = pair
    read, write = os.pipe()
    Channel(theirs).send({"op": "attach"}, (write,))
    message, fds = channel.receive(5.0)
    os.write(fds[0], b"through")
    assert (message, os.read(read, 10)) == ({"op": "attach"}, b"through")
    for fd in (read, write, *fds):
        os.close(fd)


@pytest.mark.parametrize("sent", [b"", b"\x05", frame(b"{}")[:-1]], ids=["none", "head", "body"])
def test_an_incomplete_frame_times_out(pair: Pair, sent: bytes) -> None:
    channel, theirs = pair
    theirs.sendall(sent)
    start = time.monotonic()
    with pytest.raises(ChannelTimeoutError):
        channel.receive(0.2)
    assert 0.15 < time.monotonic() - start < 2.0


def test_the_deadline_covers_the_whole_frame(pair: Pair) -> None:
    """A peer that sends a byte now and then does not keep the judge waiting for ever."""
    channel, theirs = pair
    stop = threading.Event()

    def drip() -> None:
        for byte in frame(b" " * 1000):
            if stop.wait(0.05):
                return
            theirs.send(bytes([byte]))

    thread = threading.Thread(target=drip)
    thread.start()
    with pytest.raises(ChannelTimeoutError):
        channel.receive(0.5)
    stop.set()
    thread.join()


def test_a_peer_that_does_not_read_times_out(pair: Pair) -> None:
    channel, _ = pair
    with pytest.raises(ChannelTimeoutError):
        channel.send({"text": "x" * (8 << 20)}, timeout=0.3)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (frame(b"", length=MOST_BYTES + 1), "over the limit"),
        (frame(b"not json"), "not JSON"),
        (frame(b"\xff\xfe"), "not JSON"),
        (frame(b"[" * 200_000), "not JSON"),
        (frame(b"[1]"), "not an object"),
        (frame(b"1"), "not an object"),
        (frame(b"{}", fds=2), "0 of 2 descriptors"),
    ],
    ids=["oversized", "text", "bytes", "deep", "list", "number", "descriptors"],
)
def test_what_is_no_frame_is_refused(pair: Pair, sent: bytes, why: str) -> None:
    channel, theirs = pair
    theirs.sendall(sent)
    with pytest.raises(ChannelClosedError, match=why):
        channel.receive(5.0)


def test_descriptors_of_a_refused_frame_are_closed(pair: Pair) -> None:
    channel, theirs = pair
    read, write = os.pipe()
    before = open_descriptors()
    socket.send_fds(theirs, [frame(b"not json", fds=2)], [read, write])
    with pytest.raises(ChannelClosedError):
        channel.receive(5.0)
    assert open_descriptors() == before
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("sent", [b"", frame(b"{}")[:3], frame(b"{}")[:-1]])
def test_the_end_of_the_stream(pair: Pair, sent: bytes) -> None:
    channel, theirs = pair
    theirs.sendall(sent)
    theirs.close()
    with pytest.raises(ChannelClosedError, match="end of stream"):
        channel.receive(5.0)
    with pytest.raises(ChannelClosedError):
        channel.send({})


def test_a_closed_channel_says_so(pair: Pair) -> None:
    channel, _ = pair
    channel.close()
    with pytest.raises(ChannelClosedError):
        channel.receive(5.0)
    with pytest.raises(ChannelClosedError):
        channel.send({})


def test_waiting_tells_of_what_nobody_asked_for(pair: Pair) -> None:
    channel, theirs = pair
    assert not channel.waiting()
    theirs.sendall(frame(b"{}"))
    assert channel.waiting()
    channel.receive(5.0)
    assert not channel.waiting()


def test_descriptors_above_a_thousand_can_be_waited_for() -> None:
    """select() cannot; a judge holds one descriptor per shared tensor."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip(f"no more than {hard} descriptors here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    held: list[int] = []
    try:
        while not held or held[-1] < 1030:
            held.append(os.dup(0))
        ours, theirs = socket.socketpair()
        assert ours.fileno() > 1024
        sender, receiver = Channel(ours), Channel(theirs)
        sender.send({"number": 1})
        assert receiver.receive(5.0) == ({"number": 1}, [])
        sender.close()
        receiver.close()
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
