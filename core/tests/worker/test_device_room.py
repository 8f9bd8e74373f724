"""Memory that is reserved on a device, across processes."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopt.model.device import Device
from kopt.testing.processes import Holder
from kopt.worker.device_lock import DeviceLock
from kopt.worker.device_room import DeviceRoom, _fits, _Request

TOTAL = 1000
DEVICE = Device(
    kind="cuda", name="d", architecture="a", units=1, memory_bytes=TOTAL, cache_bytes=1, uuid="u"
)
HOLD = f"""
import sys, time
from pathlib import Path
from kopt.model.device import Device
from kopt.worker.device_lock import DeviceLock
from kopt.worker.device_room import DeviceRoom

device = Device.model_validate_json(sys.argv[2])
folder = Path(sys.argv[1])
room = DeviceRoom(folder, device, DeviceLock(folder, device), total={TOTAL})
room.reserve(int(sys.argv[3]))
print("held", flush=True)
time.sleep(60)
"""


def holding(folder: Path, nbytes: int, of: Device = DEVICE) -> Holder:
    """Return another process that has reserved memory."""
    return Holder(HOLD, folder, of.model_dump_json(), nbytes)


class Asker:
    """A thread that wants memory."""

    def __init__(self, folder: Path, nbytes: int, patience: float = 60.0) -> None:
        self.lock = DeviceLock(folder, DEVICE)
        self.room = DeviceRoom(folder, DEVICE, self.lock, total=TOTAL, patience=patience)
        self.got = threading.Event()
        self._thread = threading.Thread(target=self._ask, args=(nbytes,))
        self._thread.start()

    def _ask(self, nbytes: int) -> None:
        with self.lock.working():
            self.room.reserve(nbytes)
            self.got.set()

    def end(self) -> None:
        self._thread.join(10.0)
        assert not self._thread.is_alive()
        self.room.close()


def test_who_fits_does_not_wait(tmp_path: Path) -> None:
    held = holding(tmp_path, 500)
    asker = Asker(tmp_path, 400)
    assert asker.got.wait(10.0)
    asker.end()
    held.kill()


def test_who_does_not_fit_waits_until_another_process_ends_however_it_does(tmp_path: Path) -> None:
    held = holding(tmp_path, 500)
    asker = Asker(tmp_path, 600)
    assert not asker.got.wait(1.0)
    with asker.lock.exclusive():
        pass  # who waits for memory keeps nobody from measuring
    held.kill()
    assert asker.got.wait(10.0)
    asker.end()
    assert [each.name for each in next(tmp_path.glob("*.room")).iterdir()] == ["gate"]


def test_what_no_device_has_is_given_to_who_is_alone(tmp_path: Path) -> None:
    asker = Asker(tmp_path, 5 * TOTAL)
    assert asker.got.wait(10.0)
    asker.end()


def test_who_would_keep_a_large_one_waiting_does_not_overtake_it(tmp_path: Path) -> None:
    held = holding(tmp_path, 500)
    large = Asker(tmp_path, 900)
    assert not large.got.wait(0.5)
    small = Asker(tmp_path, 100)
    assert not small.got.wait(1.0)
    held.kill()
    assert large.got.wait(10.0)
    assert not small.got.wait(0.5)
    large.end()
    assert small.got.wait(10.0)
    small.end()


def test_who_fits_beside_those_that_wait_does_not_wait_for_them(tmp_path: Path) -> None:
    """A small problem waited minutes behind a large one that waited for another large one."""
    held = holding(tmp_path, 500)
    large = Asker(tmp_path, 700)
    assert not large.got.wait(0.5)
    small = [Asker(tmp_path, 100) for _ in range(2)]
    assert all(each.got.wait(10.0) for each in small)
    third = Asker(tmp_path, 100)
    assert not third.got.wait(1.0), "beside the large one there are 950 - 900 left"
    held.kill()
    assert large.got.wait(10.0)
    assert not third.got.wait(0.5)
    for each in small:
        each.end()
    assert third.got.wait(10.0)
    large.end()
    third.end()


@given(st.lists(st.tuples(st.integers(1, 1200), st.booleans()), max_size=8), st.integers(1, 1200))
def test_what_is_met_fits_and_the_first_who_waits_is_never_put_off(found, nbytes) -> None:
    others = [_Request(place, size, holds) for place, (size, holds) in enumerate(found)]
    met = _fits(len(others), nbytes, others, TOTAL)
    held = sum(each.nbytes for each in others if each.holds)
    if met:
        assert held == 0 or held + nbytes <= TOTAL
    waiting = [each for each in others if not each.holds]
    if met and waiting:
        later = [each for each in others if each.holds and each.place > waiting[0].place]
        assert waiting[0].nbytes + sum(each.nbytes for each in later) + nbytes <= TOTAL
    if not waiting:
        assert met == (held == 0 or held + nbytes <= TOTAL)


def test_more_is_lent_where_others_leave_it(tmp_path: Path) -> None:
    """To a look at a huge tensor in the midst of a verification: the others must not lack it."""
    held = holding(tmp_path, 500)
    mine = Asker(tmp_path, 200)
    assert mine.got.wait(10.0)
    with mine.room.lend(300) as lent:
        assert not lent, "300 beside 700 are more than 950"
    with mine.room.lend(200) as lent:
        assert lent
        other = Asker(tmp_path, 100)
        assert not other.got.wait(0.5)
    assert other.got.wait(10.0)
    other.end()
    waits = Asker(tmp_path, 400)
    assert not waits.got.wait(0.5)
    with mine.room.lend(100) as lent:
        assert not lent, "who waits comes first"
    held.kill()
    assert waits.got.wait(10.0)
    waits.end()
    mine.end()
    assert [each.name for each in next(tmp_path.glob("*.room")).iterdir()] == ["gate"]


def test_nobody_waits_for_ever(tmp_path: Path) -> None:
    held = holding(tmp_path, 900)
    begun = time.monotonic()
    asker = Asker(tmp_path, 900, patience=0.5)
    assert asker.got.wait(10.0)
    assert time.monotonic() - begun >= 0.5
    asker.end()
    held.kill()


@pytest.mark.parametrize(("first", "then"), [(300, 900), (900, 100), (500, 0)])
def test_another_reservation_replaces_the_first(tmp_path: Path, first: int, then: int) -> None:
    mine = Asker(tmp_path, first)
    mine.end()
    mine.room.reserve(first)
    mine.room.reserve(then)
    rest = Asker(tmp_path, 950 - then)
    assert rest.got.wait(10.0)
    rest.end()
    mine.room.close()


def test_nobody_waits_for_memory_of_unknown_size(tmp_path: Path) -> None:
    held = holding(tmp_path, 900)
    room = DeviceRoom(tmp_path, DEVICE, DeviceLock(tmp_path, DEVICE), total=0)
    begun = time.monotonic()
    room.reserve(900)
    assert time.monotonic() - begun < 5.0
    held.kill()


def test_devices_have_rooms_of_their_own(tmp_path: Path) -> None:
    held = holding(tmp_path, 900, DEVICE.model_copy(update={"uuid": "other"}))
    asker = Asker(tmp_path, 900)
    assert asker.got.wait(10.0)
    asker.end()
    held.kill()
