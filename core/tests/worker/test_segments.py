"""Shared memory: what one side writes the other reads, and neither can take it away."""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kopt.model.values import TensorRef
from kopt.worker import segments
from kopt.worker.channel import Channel
from kopt.worker.segments import ALIGNMENT, Layout, MappedMemory, Segment, span_bytes

OTHER_SIDE = """
import socket, struct, sys
from kopt.model.values import TensorRef
from kopt.worker.channel import Channel
from kopt.worker.segments import MappedMemory

channel = Channel(socket.socket(fileno=int(sys.argv[1])))
order, fds = channel.receive(20.0)
memory = MappedMemory()
memory.attach(order["segment"], fds)
ref = TensorRef.model_validate(order["ref"])
values = memory.buffer(ref).cast("d")
channel.send({"seen": list(values), "is_cpu": memory.is_cpu(ref)})
values[1] = 42.0
channel.send({})
channel.receive(20.0)
"""

TOUCH = """
import ctypes, json, sys
from kopt.model.values import TensorRef
from kopt.worker.segments import MappedMemory

announcement, ref, fd, offset = json.loads(sys.argv[1])
memory = MappedMemory()
memory.attach(announcement, [fd])
at = memory.address(TensorRef.model_validate(ref)) + offset
print(ctypes.c_ubyte.from_address(at).value)
"""


def ref(
    segment: int, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0
) -> TensorRef:
    return TensorRef(segment=segment, offset=offset, dtype="float64", shape=shape, strides=strides)


@pytest.mark.parametrize(
    ("shape", "strides", "nbytes"),
    [((), (), 8), ((3,), (1,), 24), ((2, 3), (3, 1), 48), ((2, 3), (1, 2), 48),
     ((2, 3), (8, 2), 8 * 13), ((4,), (0,), 8), ((0, 3), (3, 1), 0)],
)  # fmt: skip
def test_span(shape: tuple[int, ...], strides: tuple[int, ...], nbytes: int) -> None:
    assert span_bytes(ref(1, shape, strides)) == nbytes


def test_both_views_in_one_process() -> None:
    segment, memory = Segment(64), MappedMemory()
    announcement, (fd,) = segment.announcement()
    memory.attach(announcement, [os.dup(fd)])
    whole = ref(segment.id, (4,), (1,), offset=16)
    values = memory.buffer(whole).cast("d")
    values[:] = memoryview(struct.pack("4d", 1, 2, 3, 4)).cast("d")
    assert struct.unpack("4d", segment.map[16:48]) == (1, 2, 3, 4)
    assert memory.address(whole) - memory.address(ref(segment.id, (1,), (1,))) == 16
    assert memory.is_cpu(whole)


def test_detaching_while_a_view_lives_is_no_error() -> None:
    segment, memory = Segment(64), MappedMemory()
    announcement, (fd,) = segment.announcement()
    memory.attach(announcement, [os.dup(fd)])
    view = memory.buffer(ref(segment.id, (2,), (1,)))
    memory.detach(segment.id)
    assert bytes(view) == bytes(16)
    assert not memory.is_cpu(ref(segment.id, (2,), (1,)))
    memory.detach(segment.id)
    segment.close()
    segment.close()


def test_across_processes() -> None:
    segment = Segment(64)
    segment.map[:16] = struct.pack("2d", 1.5, 2.5)
    ours, theirs = socket.socketpair()
    with subprocess.Popen(
        [sys.executable, "-c", OTHER_SIDE, str(theirs.fileno())], pass_fds=[theirs.fileno()]
    ) as other:
        theirs.close()
        channel = Channel(ours)
        announcement, fds = segment.announcement()
        wanted = ref(segment.id, (2,), (1,))
        channel.send({"segment": announcement, "ref": json.loads(wanted.model_dump_json())}, fds)
        assert channel.receive(20.0)[0] == {"seen": [1.5, 2.5], "is_cpu": True}
        channel.receive(20.0)
        assert struct.unpack("2d", segment.map[:16]) == (1.5, 42.0)
        channel.close()
        other.wait(20)


@pytest.mark.skipif(sys.platform != "linux", reason="needs sealed memory files")
def test_whoever_maps_a_segment_cannot_shrink_it() -> None:
    segment = Segment(1 << 16)
    _, (fd,) = segment.announcement()
    theirs = os.dup(fd)
    with pytest.raises(PermissionError):
        os.ftruncate(theirs, 0)
    with pytest.raises(PermissionError):
        os.ftruncate(theirs, 1 << 20)
    os.close(theirs)
    assert segment.map[-1] == 0


def test_closing_gives_the_descriptors_back() -> None:
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    segments = [Segment(4096) for _ in range(20)]
    for segment in segments:
        segment.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@given(st.integers(0, 1 << 34))
@example(0)
@example(1)
@example(mmap.PAGESIZE - 1)
@example(mmap.PAGESIZE)
@example(mmap.PAGESIZE + 1)
def test_a_layout_puts_the_payload_against_the_last_guard(payload: int) -> None:
    layout = Layout.around(payload)
    (first, first_bytes), (last, last_bytes) = layout.guards
    assert first == 0
    assert last + last_bytes == layout.nbytes
    for edge in (first_bytes, last, last_bytes, layout.nbytes):
        assert edge % mmap.PAGESIZE == 0
        assert edge > 0
    assert layout.start % ALIGNMENT == 0
    assert layout.start >= first_bytes
    assert 0 <= last - (layout.start + payload) < ALIGNMENT
    assert layout.start - first_bytes < mmap.PAGESIZE


def touch(payload: int, offset: int) -> subprocess.CompletedProcess[str]:
    """Read one byte relative to a payload of 7s, in a process that mapped it."""
    layout = Layout.around(payload)
    segment = Segment(layout.nbytes, layout.guards)
    segment.map[:] = b"\7" * layout.nbytes  # the judge's own mapping has no forbidden pages
    announcement, (fd,) = segment.announcement()
    where = TensorRef(
        segment=segment.id, offset=layout.start, dtype="uint8", shape=(payload,), strides=(1,)
    )
    told = json.dumps([announcement, json.loads(where.model_dump_json()), fd, offset])
    try:
        return subprocess.run(
            [sys.executable, "-c", TOUCH, told], pass_fds=[fd], timeout=60, check=False,
            capture_output=True, text=True,
        )  # fmt: skip
    finally:
        segment.close()


@pytest.mark.skipif(sys.platform != "linux", reason="guard pages are tested on Linux")
@pytest.mark.parametrize(
    ("payload", "offset", "dies"),
    [(100, 0, False), (100, 99, False), (100, 127, False), (100, 128, True), (128, 128, True),
     (100, -1, False), (mmap.PAGESIZE, -1, True), (0, 0, True), (0, -1, True)],
)  # fmt: skip
def test_touching_a_guard_page_kills(payload: int, offset: int, dies: bool) -> None:
    done = touch(payload, offset)
    if dies:
        assert -done.returncode in {signal.SIGSEGV, signal.SIGBUS}
    else:
        assert (done.returncode, done.stdout) == (0, "7\n")


def test_where_pages_cannot_be_forbidden_they_stay_canaries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    segments._mprotect.cache_clear()
    try:
        layout = Layout.around(8)
        segment, memory = Segment(layout.nbytes, layout.guards), MappedMemory()
        announcement, (fd,) = segment.announcement()
        memory.attach(announcement, [os.dup(fd)])
    finally:
        segments._mprotect.cache_clear()
    memory.buffer(ref(segment.id, (1,), (1,), offset=0))[0] = 5
    assert segment.map[0] == 5
