"""Memory that is reserved on a device, across processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kopt.model.device import Device
from kopt.worker.device_lock import DeviceLock
from kopt.worker.device_room import DeviceRoom

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


class Holder:
    """Another process that has reserved memory."""

    def __init__(self, folder: Path, nbytes: int, of: Device = DEVICE) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(folder), of.model_dump_json(), str(nbytes)],
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"held\n"

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


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
    holder = Holder(tmp_path, 500)
    asker = Asker(tmp_path, 400)
    assert asker.got.wait(10.0)
    asker.end()
    holder.kill()


def test_who_does_not_fit_waits_until_another_process_ends_however_it_does(tmp_path: Path) -> None:
    holder = Holder(tmp_path, 500)
    asker = Asker(tmp_path, 600)
    assert not asker.got.wait(1.0)
    with asker.lock.exclusive():
        pass  # who waits for memory keeps nobody from measuring
    holder.kill()
    assert asker.got.wait(10.0)
    asker.end()
    assert [each.name for each in next(tmp_path.glob("*.room")).iterdir()] == ["gate"]


def test_what_no_device_has_is_given_to_who_is_alone(tmp_path: Path) -> None:
    asker = Asker(tmp_path, 5 * TOTAL)
    assert asker.got.wait(10.0)
    asker.end()


def test_a_small_one_does_not_overtake_a_large_one(tmp_path: Path) -> None:
    holder = Holder(tmp_path, 500)
    large = Asker(tmp_path, 900)
    assert not large.got.wait(0.5)
    small = Asker(tmp_path, 100)
    assert not small.got.wait(1.0)
    holder.kill()
    assert large.got.wait(10.0)
    assert not small.got.wait(0.5)
    large.end()
    assert small.got.wait(10.0)
    small.end()


def test_nobody_waits_for_ever(tmp_path: Path) -> None:
    holder = Holder(tmp_path, 900)
    begun = time.monotonic()
    asker = Asker(tmp_path, 900, patience=0.5)
    assert asker.got.wait(10.0)
    assert time.monotonic() - begun >= 0.5
    asker.end()
    holder.kill()


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


def test_devices_have_rooms_of_their_own(tmp_path: Path) -> None:
    holder = Holder(tmp_path, 900, DEVICE.model_copy(update={"uuid": "other"}))
    asker = Asker(tmp_path, 900)
    assert asker.got.wait(10.0)
    asker.end()
    holder.kill()
