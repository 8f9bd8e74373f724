"""Several GPUs of one machine for one suite: which of them, and which one has the next problem."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from kopt.env import visible_gpus
from kopt.errors import ConfigError, DeviceError
from kopt.machine import gpu_names


def parse_gpus(text: str) -> tuple[str, ...]:
    """Return the numbers in ``0,2``, as the driver counts the GPUs of this machine.

    Raises ConfigError for what is no such list or is hidden from CUDA, and where they are of more
    than one kind: times of two devices do not belong in one record. Raises DeviceError for a GPU that
    is not there.
    """
    numbers = tuple(part.strip() for part in text.split(","))
    if not all(number.isdecimal() for number in numbers) or len(set(numbers)) < len(numbers):
        raise ConfigError(f"--gpus {text}: give different numbers, as 0,1")
    names = gpu_names()
    for number in numbers:
        if int(number) >= len(names):
            here = f"{len(names)}, from 0" if names else "none"
            raise DeviceError(
                f"--gpus {text}: there is no GPU {number} (nvidia-smi lists {here}); name some that are there"
            )
        if (visible := visible_gpus()) and number not in visible:
            raise ConfigError(
                f"--gpus {text}: CUDA_VISIBLE_DEVICES={','.join(visible)} hides GPU {number}; name "
                "those that it shows by their numbers, or unset it"
            )
    kinds = {names[int(number)]: number for number in numbers}
    if len(kinds) > 1:
        raise ConfigError(
            f"--gpus {text}: {' and '.join(f'{n} ({name})' for name, n in kinds.items())} are of "
            "different kinds, whose times do not belong in one record; run one suite on each"
        )
    return numbers


def showing(gpu: str) -> dict[str, str]:
    """Return the environment in which CUDA sees this GPU alone, by the driver's number."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpu}


class Sharing:
    """Gives each problem the GPU that has the fewest. May be asked by threads."""

    def __init__(self, gpus: Sequence[str]) -> None:
        """No ``gpus``: whichever CUDA takes for the first, for all."""
        self._busy = Counter(dict.fromkeys(gpus, 0))
        self._lock = threading.Lock()

    @contextmanager
    def one(self) -> Iterator[Mapping[str, str]]:
        """Lend a GPU, as the variables of the process that will use it."""
        if not self._busy:
            yield {}
            return
        with self._lock:
            gpu = min(self._busy, key=lambda each: self._busy[each])
            self._busy[gpu] += 1
        try:
            yield showing(gpu)
        finally:
            with self._lock:
                self._busy[gpu] -= 1
