"""One measurement at a time on a device, across processes."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from kopt.model.device import Device, DeviceKind
from kopt.testing.processes import Holder
from kopt.worker.device_lock import DeviceLock

HOLD = """
import sys, time
from pathlib import Path
from kopt.model.device import Device
from kopt.worker.device_lock import DeviceLock

device = Device.model_validate_json(sys.argv[2])
with getattr(DeviceLock(Path(sys.argv[1]), device), sys.argv[3])():
    print("held", flush=True)
    time.sleep(60)
"""


def device(kind: DeviceKind = "cpu", uuid: str = "") -> Device:
    return Device(
        kind=kind, name="d", architecture="a", units=1, memory_bytes=1, cache_bytes=1, uuid=uuid
    )


def holding(folder: Path, how: str, of: Device) -> Holder:
    """Return another process that holds a lock."""
    return Holder(HOLD, folder, of.model_dump_json(), how)


class Waiter:
    """A thread that wants a lock."""

    def __init__(self, lock: DeviceLock, how: str) -> None:
        self.got = threading.Event()
        self._thread = threading.Thread(target=self._take, args=(lock, how))
        self._thread.start()

    def _take(self, lock: DeviceLock, how: str) -> None:
        with getattr(lock, how)():
            self.got.set()

    def join(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        ("exclusive", "exclusive"),
        ("exclusive", "building"),
        ("building", "exclusive"),
        ("exclusive", "working"),
        ("working", "exclusive"),
    ],
)
def test_waits_until_the_holder_is_killed(tmp_path: Path, held: str, wanted: str) -> None:
    holder = holding(tmp_path, held, device())
    waiter = Waiter(DeviceLock(tmp_path, device()), wanted)
    assert not waiter.got.wait(0.4)
    holder.kill()
    assert waiter.got.wait(10)
    waiter.join()


def test_builds_share_a_cpu(tmp_path: Path) -> None:
    holder = holding(tmp_path, "building", device())
    with DeviceLock(tmp_path, device()).building():
        holder.kill()


def test_builds_do_not_disturb_a_gpu(tmp_path: Path) -> None:
    gpu = device("cuda", "GPU-1")
    holder = holding(tmp_path, "exclusive", gpu)
    with DeviceLock(tmp_path, gpu).building():
        holder.kill()


def test_work_on_a_gpu_shares_it(tmp_path: Path) -> None:
    gpu = device("cuda", "GPU-1")
    holder = holding(tmp_path, "working", gpu)
    with DeviceLock(tmp_path, gpu).working():
        holder.kill()


def test_a_thread_knows_how_long_it_waited(tmp_path: Path) -> None:
    holder, lock = holding(tmp_path, "exclusive", device()), DeviceLock(tmp_path, device())
    threading.Timer(0.5, holder.kill).start()
    with lock.working():
        assert 0.4 < lock.waited < 10
    others: list[float] = []
    thread = threading.Thread(target=lambda: others.append(lock.waited))
    thread.start()
    thread.join()
    assert others == [0.0]


def test_who_waits_to_measure_is_not_overtaken_by_work(tmp_path: Path) -> None:
    first, lock = holding(tmp_path, "working", device()), DeviceLock(tmp_path, device())
    waiter = Waiter(lock, "exclusive")
    assert not waiter.got.wait(0.3)
    second = Waiter(lock, "working")
    assert not second.got.wait(0.3)
    first.kill()
    assert waiter.got.wait(10)
    waiter.join()
    second.join()


def test_measurements_that_wait_follow_each_other(tmp_path: Path) -> None:
    """Work that came between them waits for both: what runs has to end once, not twice."""
    lock, order = DeviceLock(tmp_path, device()), list[str]()

    def enter(how: str) -> threading.Thread:
        def take() -> None:
            with getattr(lock, how)():
                order.append(how)
                time.sleep(0.2)

        thread = threading.Thread(target=take)
        thread.start()
        time.sleep(0.2)
        return thread

    with lock.exclusive():
        threads = [enter(how) for how in ("working", "exclusive", "working", "exclusive")]
    for thread in threads:
        thread.join(10)
    assert order == ["exclusive", "exclusive", "working", "working"]


def test_work_that_waited_for_long_comes_in_between_two_measurements(tmp_path: Path) -> None:
    lock = DeviceLock(tmp_path, device(), patience=0.5)
    stop, measured = threading.Event(), list[float]()

    def measure() -> None:
        while not stop.is_set():
            with lock.exclusive():
                time.sleep(0.1)
                measured.append(time.monotonic())

    threads = [threading.Thread(target=measure) for _ in range(3)]  # there is always one that waits
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    try:
        begun = time.monotonic()
        with lock.working():
            assert 0.4 < time.monotonic() - begun < 5
            here = len(measured)
            time.sleep(0.3)
            assert len(measured) == here, "nothing is measured beside work"
    finally:
        stop.set()
        for thread in threads:
            thread.join(10)


def test_a_thread_that_works_may_enter_again_though_somebody_waits(tmp_path: Path) -> None:
    lock = DeviceLock(tmp_path, device())
    with lock.working():
        waiter = Waiter(lock, "exclusive")
        assert not waiter.got.wait(0.3)
        with lock.working(), lock.building():
            pass
        assert not waiter.got.wait(0.1)
        with pytest.raises(RuntimeError, match="cannot wait for it to be idle"), lock.exclusive():
            pass
    assert waiter.got.wait(10)
    waiter.join()


def test_work_makes_way_for_who_waits_to_measure(tmp_path: Path) -> None:
    lock = DeviceLock(tmp_path, device(), piece=0.0)
    lock.make_way()  # it does not work: nothing to do
    with lock.working():
        lock.make_way()
        waiter = Waiter(lock, "exclusive")
        assert not waiter.got.wait(0.3)
        assert lock.waited < 0.1
        lock.make_way()
        assert waiter.got.is_set(), "it had its turn before work went on"
        with pytest.raises(RuntimeError, match="cannot wait for it to be idle"), lock.exclusive():
            pass
    waiter.join()


def test_work_of_many_short_pieces_makes_way_now_and_then(tmp_path: Path) -> None:
    """Each time it waits for all that measure, so it works for a while first."""
    lock = DeviceLock(tmp_path, device(), piece=0.5)
    with lock.working():
        waiter = Waiter(lock, "exclusive")
        begun = time.monotonic()
        while not waiter.got.is_set():
            assert time.monotonic() - begun < 10
            lock.make_way()
            time.sleep(0.01)
        assert time.monotonic() - begun > 0.4
        waiter.join()
        again = Waiter(lock, "exclusive")
        assert not again.got.wait(0.2)
        lock.make_way()
        assert not again.got.is_set(), "its time began anew"
    again.join()


def test_devices_are_apart(tmp_path: Path) -> None:
    holder = holding(tmp_path, "exclusive", device("cuda", "GPU-1"))
    with DeviceLock(tmp_path, device("cuda", "GPU-2")).exclusive():
        holder.kill()


def test_threads_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    lock = DeviceLock(tmp_path, device())
    with lock.exclusive():
        waiter = Waiter(lock, "exclusive")
        assert not waiter.got.wait(0.3)
    assert waiter.got.wait(10)
    waiter.join()


def test_a_lock_file_that_may_only_be_read_is_enough(tmp_path: Path) -> None:
    """Another user made it: the folder is shared by all users of a machine."""
    with DeviceLock(tmp_path / "locks", device()).exclusive():
        pass
    for file in (tmp_path / "locks").iterdir():
        file.chmod(0o444)
    with DeviceLock(tmp_path / "locks", device()).exclusive():
        assert (tmp_path / "locks").stat().st_mode & 0o7777 == 0o1777


def test_a_thread_that_rests_lets_a_measurement_through_and_waits_for_its_end(
    tmp_path: Path,
) -> None:
    lock = DeviceLock(tmp_path, device())
    other = DeviceLock(tmp_path, device())
    with lock.working():
        waiter = Waiter(other, "exclusive")
        assert not waiter.got.wait(0.3)
        with lock.resting():
            assert waiter.got.wait(5)
            with lock.working():  # as a build does on a CPU
                pass
            waiter.join()
        later = Waiter(other, "exclusive")
        assert not later.got.wait(0.3)  # it works again
        with lock.resting():
            assert later.got.wait(5)
            later.join()
    with lock.resting(), other.exclusive():  # nothing to let go of
        pass


def test_who_rested_waits_for_the_measurement_that_began_meanwhile(tmp_path: Path) -> None:
    lock = DeviceLock(tmp_path, device())
    order: list[str] = []
    with lock.working():
        with lock.resting():
            holder = holding(tmp_path, "exclusive", device())
            threading.Timer(0.5, lambda: (order.append("measured"), holder.kill())).start()
        order.append("works again")
    assert order == ["measured", "works again"]
