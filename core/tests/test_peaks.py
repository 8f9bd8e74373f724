"""A device's rates: measured in a process of its own, kept, and found again."""

from __future__ import annotations

from typing import Any

import pytest

from kopt.errors import DeviceError
from kopt.model.device import Device, Peaks
from kopt.peaks import known_peaks, measure_peaks

BACKEND = """
import kopt
from kopt.errors import DeviceError
from kopt.model.device import Device, Peaks


class Backend:
    @kopt.hookimpl
    def kopt_measure_device(self, device):
        {body}


def seen(**rates):
    return Device(
        kind="cpu", name="plain", architecture="x86_64", units=2, memory_bytes=1, cache_bytes=1,
        versions={{"framework": "{version}"}}, peaks=Peaks(**rates) if rates else None,
    )
"""


@pytest.fixture
def backend(distributions: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    """Install a backend whose measuring does what it is told."""
    monkeypatch.setenv("PYTHONPATH", str(distributions.site))
    monkeypatch.setenv("KOPT_CACHE_DIR", str(tmp_path / "cache"))
    names = iter(f"measuring{number}" for number in range(9))

    def install(body: str, version: str = "1") -> str:
        name = next(names)
        distributions.add(
            f"{name}-kopt", plugins={f"backend.{name}": f"{name}_kopt:Backend"},
            modules={f"{name}_kopt": BACKEND.format(body=body, version=version)},
        )  # fmt: skip
        return name

    return install


def test_what_was_measured_is_kept_for_that_device_and_those_versions(backend: Any) -> None:
    name = backend("print('chatter'); return seen(copy_gb_s=10.0, read_gb_s=12.0)")
    found = measure_peaks("cpu", name)
    assert found.peaks == Peaks(copy_gb_s=10.0, read_gb_s=12.0)
    assert found.peaks.bandwidth_gb_s == 12.0
    unmeasured = found.model_copy(update={"peaks": None})
    assert known_peaks(unmeasured) == found.peaks
    other: Device = unmeasured.model_copy(update={"versions": {"framework": "2"}})
    assert known_peaks(other) is None
    assert known_peaks(unmeasured.model_copy(update={"units": 4})) is None


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return None", "measures no device cpu"),
        ("return seen()", "measured nothing"),
        ("raise DeviceError('it is gone')", "it is gone"),
        ("raise ValueError('a slip')", "a slip"),
        ("import os; os._exit(7)", "its process said nothing"),
    ],
)
def test_a_device_that_was_not_measured(backend: Any, body: str, said: str) -> None:
    with pytest.raises(DeviceError, match=said):
        measure_peaks("cpu", backend(body))


def test_a_file_that_is_broken_is_no_measurement(backend: Any, tmp_path: Any) -> None:
    found = measure_peaks("cpu", backend("return seen(copy_gb_s=10.0)"))
    (file,) = (tmp_path / "cache" / "devices").iterdir()
    file.write_text("{half of it")
    assert known_peaks(found) is None


def test_no_rate_no_bandwidth() -> None:
    assert Peaks().bandwidth_gb_s is None
