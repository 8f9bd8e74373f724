"""Before a suite's first problem: whether its settings work here, and which device this is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt.config import resolve, run_config
from kopt.env import settings_from_environment
from kopt.errors import RunStoreError
from kopt.loading import load_hooks, named_plugins
from kopt.machine import choose_device, refuse_untimeable
from kopt.model.problem import InputSpec, Problem, ReferenceSource
from kopt.optimize import backends_beside, choose_backend
from kopt.single import evaluator_for

if TYPE_CHECKING:
    from kopt.model.device import Device, DeviceKind
    from kopt.suites.records import SuiteRecord, SuiteSettings

_ANY = Problem(
    name="device", format="native", inputs=(InputSpec(name="x", shape=(16,)),),
    reference=ReferenceSource(kind="function", source="def f(x):\n    return x + 1\n", entry="f"),
)  # fmt: skip


def settled(settings: SuiteSettings) -> tuple[DeviceKind, dict[str, str]]:
    """Return the device kind and the plugins' distributions that runs of a suite will have.

    Raises KoptError, as every run would: a wrong setting is no outcome of a problem.
    """
    resolved = resolve(settings.named, (), None, settings_from_environment())
    resolved = resolved.model_copy(update={"options": {**resolved.options, **settings.options}})
    asked = [resolved.backend.rpartition(":")[2]] if resolved.backend else []
    device = choose_device(resolved.device, asked)
    backend = choose_backend(resolved.backend, device)
    refuse_untimeable(backend.rpartition(":")[2], device)
    config = run_config(resolved, device, backend, backends_beside(resolved, device, backend))
    hooks = load_hooks(config, named_plugins(config))
    hooks.ensure_available()
    return device, hooks.sources()


def device_here(kind: DeviceKind) -> Device:
    """Return the device as a run would find it, with its rates where they were measured once."""
    settings = resolve({"device": kind})
    with evaluator_for(_ANY, [], kind, settings) as evaluator:
        device, _ = evaluator.prepare()
    return device


def refuse_other_device(record: SuiteRecord, now: Device) -> None:
    """Raise RunStoreError where a record's times came from another device, driver or framework."""
    before, after = record.device.identity, now.identity
    if before == after:
        return
    changed = ", ".join(
        f"{key}: {before.get(key, 'absent')} -> {after.get(key, 'absent')}"
        for key in sorted(before | after)
        if before.get(key) != after.get(key)
    )
    raise RunStoreError(
        f"this record of {record.suite} was begun elsewhere ({changed}), and times of two devices "
        "do not belong in one record; go on there, or name another file with -o"
    )
