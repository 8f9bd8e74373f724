"""The candidate process: builds and runs candidates on the judge's orders (``python -m``).

It holds no secret and no expected result. Whatever it says is a claim; the judge looks at its own
memory and its own clock. It dies with the judge.
"""

from __future__ import annotations

import gc
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kopt.env import confined_to
from kopt.errors import CandidateError, KoptError
from kopt.evaluator import Compiled
from kopt.hooks import Hooks
from kopt.model.candidate import Candidate
from kopt.model.device import Device
from kopt.model.executable import BoundCall, Executable
from kopt.model.problem import Problem
from kopt.model.values import CallSpec
from kopt.model.verification import Status
from kopt.runs.builds import BuildCache
from kopt.worker.channel import MOST_BYTES, Channel, ChannelClosedError
from kopt.worker.confinement import confine, landlock_version
from kopt.worker.cuda_profiler import cuda_profiling
from kopt.worker.device_lock import DeviceLock
from kopt.worker.imports import uncollected
from kopt.worker.limits import die_with_parent, limit_resources
from kopt.worker.segments import MappedMemory
from kopt.worker.settings import PluginRef

Reply = dict[str, Any]


class WorkerContext:
    """See kopt.model.executable.BuildContext."""

    def __init__(
        self, device: Device | None, architecture: str, names: tuple[str, ...], cache: BuildCache
    ) -> None:
        self.device = device
        self.architecture = architecture
        self.argument_names = names
        self._cache = cache

    def cached(self, key: str) -> Path | None:
        """Return the folder of an intact earlier build, or None."""
        return self._cache.cached(key)

    def keep(self, key: str, folder: Path) -> Path:
        """Move a finished build into the cache."""
        return self._cache.keep(key, folder)

    def scratch(self) -> Path:
        """Return a new empty folder."""
        return self._cache.scratch()


class Dropping:
    """A call that lets go of what it gave before it is launched again: there is no room for both."""

    def __init__(self, call: Any) -> None:
        self._launch, self._drop, self.collect = call.launch, call.drop, call.collect

    def launch(self) -> None:
        """See kopt.model.executable.BoundCall."""
        self._drop()
        self._launch()


def load_plugins(plugins: Sequence[PluginRef], purpose: str) -> Hooks:
    """Load plugins, and have them import what building for a purpose will take."""
    with uncollected():
        hooks = Hooks.load([(role, name, options) for role, name, options in plugins])
        if purpose:
            hooks.kopt_warm_up(purpose)
    return hooks


class CandidateServer:
    """Answers one order at a time."""

    def __init__(self, channel: Channel, hooks: Hooks | None = None) -> None:
        """``hooks``: plugins that were loaded before this process was forked."""
        self._channel = channel
        self._loaded = hooks
        self._memory = MappedMemory()
        self._executables: dict[str, Executable] = {}
        self._calls: dict[int, tuple[str, BoundCall]] = {}
        self._orders: dict[str, Callable[[Reply, list[int]], Reply]] = {
            "load": self._load, "open": self._open, "build": self._build, "attach": self._attach,
            "detach": self._detach, "release": self._release, "trim": self._trim,
            "bind": self._bind, "run": self._run, "time": self._time,
            "collect": self._collect, "origin": self._origin, "sanitize": self._sanitize,
            "reset": self._reset, "ping": lambda order, fds: {}, "ahead": self._ahead,
            "listing": self._listing, "profiled": self._profiled, "timeline": self._timeline,
            "first-launch": self._first_launch, "start-tracer": self._start_tracer,
            "settle": self._settle, "fetch": self._exchange, "store": self._exchange,
        }  # fmt: skip

    def serve(self) -> None:
        """Answer until the judge hangs up."""
        while True:
            order, fds = self._channel.receive()
            self._channel.send({**self._answer(order, fds), "n": order["n"]})

    def _answer(self, order: Reply, fds: list[int]) -> Reply:
        try:
            return {"ok": True, **self._orders[order["op"]](order, fds)}
        except CandidateError as error:
            return {"ok": False, "status": error.status, "detail": error.detail}
        except KoptError as error:
            return {"ok": False, "status": "infrastructure-error", "detail": str(error)}
        except MemoryError:
            return {"ok": False, "status": Status.OOM, "detail": "out of memory (MemoryError)"}
        except BaseException as error:  # noqa: BLE001 - candidates may raise SystemExit and worse
            detail = "".join(traceback.format_exception(error))[-4000:]
            return {"ok": False, "status": Status.LAUNCH_FAILED, "detail": detail}

    def _load(self, order: Reply, fds: list[int]) -> Reply:
        self._hooks = self._loaded or load_plugins(order["plugins"], order["purpose"])
        return {}

    def _open(self, order: Reply, fds: list[int]) -> Reply:
        self._problem = Problem.model_validate(order["problem"])
        self._memory.private = bool(order.get("private"))
        device = Device.model_validate(order["device"]) if order["device"] else None
        self._context = WorkerContext(
            device, order["architecture"], tuple(order["argument_names"]),
            BuildCache(Path(order["cache"])),
        )  # fmt: skip
        return {}

    def _build(self, order: Reply, fds: list[int]) -> Reply:
        candidate = Candidate.model_validate(order["candidate"])
        executable = self._hooks.kopt_build(self._problem, candidate, self._context)
        if executable is None:
            raise CandidateError(
                Status.UNSUPPORTED,
                f"no backend of this run builds language {candidate.language!r}",
            )
        self._executables[order["key"]] = executable
        return {
            "build": executable.build.to_json(),
            "timeable": getattr(executable, "timeable", True),
            "late": hasattr(executable, "first_launch"),
        }

    def _attach(self, order: Reply, fds: list[int]) -> Reply:
        self._memory.attach(order["segment"], fds)
        return {}

    def _detach(self, order: Reply, fds: list[int]) -> Reply:
        for segment in order["segments"]:
            self._memory.detach(segment)
        return {}

    def _release(self, order: Reply, fds: list[int]) -> Reply:
        for call_id in order["calls"]:
            self._calls.pop(call_id, None)
        for executable in self._executables.values():
            forget = getattr(executable, "forget", None)
            if forget is not None:
                forget(order["segments"])
        gc.collect()
        self._detach(order, fds)
        return self._trim(order, fds)

    def _settle(self, order: Reply, fds: list[int]) -> Reply:
        """Wait for whatever a failed call left on the device; raises where its context is broken."""
        for executable in self._executables.values():
            executable.synchronize()
        return {}

    def _trim(self, order: Reply, fds: list[int]) -> Reply:
        """Have results dropped that nobody collects, and executables give cached memory back."""
        self._drop()
        for executable in self._executables.values():
            trim = getattr(executable, "trim", None)
            if trim is not None:
                trim()
        return {}

    def _drop(self) -> None:
        """Have calls let go of their results."""
        for _, bound in self._calls.values():
            drop = getattr(bound, "drop", None)
            if drop is not None:
                drop()

    def _bind(self, order: Reply, fds: list[int]) -> Reply:
        call = CallSpec.model_validate(order["call"])
        executable = self._executables[order["key"]]
        self._calls[order["call_id"]] = (order["key"], executable.bind(call, self._memory))
        return {}

    def _exchange(self, order: Reply, fds: list[int]) -> Reply:
        """Copy memory that no driver shares, from the judge (``fetch``) or to it (``store``)."""
        exchange = getattr(self._executables[order["key"]], order["op"], None)
        if exchange is None:
            raise CandidateError(
                Status.UNSUPPORTED,
                "the driver shares no device memory between processes here, and this backend's "
                "executables have no fetch and store to copy it; use another backend, or a machine "
                "whose driver has CUDA IPC",
            )
        exchange(order["segments"])
        return {}

    def _run(self, order: Reply, fds: list[int]) -> Reply:
        key, bound = self._calls[order["call_id"]]
        for _ in range(order["launches"]):
            bound.launch()
        self._executables[key].synchronize()
        return {
            "claim": bound.collect().to_json(),
            "build": self._executables[key].build.to_json(),
        }

    def _first_launch(self, order: Reply, fds: list[int]) -> Reply:
        """Have a call compile what it needs, with the device in turns, where the executable can."""
        key, bound = self._calls[order["call_id"]]
        launch, device = getattr(self._executables[key], "first_launch", None), self._context.device
        if launch is not None and device is not None:
            launch(bound, DeviceLock(Path(order["locks"]), device))
        return {}

    def _collect(self, order: Reply, fds: list[int]) -> Reply:
        """Hand over what the last timed launch of a call gave."""
        _, bound = self._calls[order["call_id"]]
        return {"claim": bound.collect().to_json()}

    def _start_tracer(self, order: Reply, fds: list[int]) -> Reply:
        start = getattr(self._executables[order["key"]], "start_tracer", None)
        if start is not None:
            start()
        return {}

    def _origin(self, order: Reply, fds: list[int]) -> Reply:
        """Say whose compute one call uses, where the executable can tell."""
        key, bound = self._calls[order["call_id"]]
        look = getattr(self._executables[key], "origin", None)
        return {"origin": None if look is None else look(bound).to_json()}

    def _sanitize(self, order: Reply, fds: list[int]) -> Reply:
        """Run one call of an instrumented build, where the executable has one."""
        key, bound = self._calls[order["call_id"]]
        run = getattr(self._executables[key], "sanitize", None)
        return {"report": None if run is None else run(bound).to_json()}

    def _profiled(self, order: Reply, fds: list[int]) -> Reply:
        """Call once unseen, then under a profiler that waits for CUDA's start of profiling."""
        key, bound = self._calls[order["call_id"]]
        executable = self._executables[key]
        bound.launch()
        executable.synchronize()
        with cuda_profiling():
            for _ in range(order["calls"]):
                bound.launch()
            executable.synchronize()
        return {}

    def _timeline(self, order: Reply, fds: list[int]) -> Reply:
        """Trace the kernels of warm calls, where the executable can."""
        key, bound = self._calls[order["call_id"]]
        trace = getattr(self._executables[key], "timeline", None)
        timeline = None if trace is None else trace(bound, order["calls"])
        return {"timeline": None if timeline is None else timeline.to_json()}

    def _time(self, order: Reply, fds: list[int]) -> Reply:
        bound = [self._calls[call_id] for call_id in order["calls"]]
        launches = order["launches"]
        if not launches:
            return {"device_ms": None}
        executable = self._executables[bound[0][0]]
        calls: list[BoundCall] = [call for _, call in bound]
        if order.get("alone"):
            self._drop()
            calls = [
                call if getattr(call, "drop", None) is None else Dropping(call) for call in calls
            ]
        if order["device_clock"]:
            return {"device_ms": executable.device_ms(calls, launches)}
        steps = [call.launch for call in calls]
        count = len(steps)
        for index in range(launches):
            steps[index % count]()
        executable.synchronize()
        return {"device_ms": None}

    def _reset(self, order: Reply, fds: list[int]) -> Reply:
        self._calls.clear()
        gc.collect()
        self._trim(order, fds)
        self._executables.clear()
        return {}

    def _ahead(self, order: Reply, fds: list[int]) -> Reply:
        """Compile ahead of time for the context's architecture and report resources."""
        executable = self._executables[order["key"]]
        compile_ahead = getattr(executable, "ahead_of_time", None)
        if compile_ahead is None:
            raise CandidateError(
                Status.UNSUPPORTED, "this backend cannot compile ahead of time for a named target"
            )
        found = Compiled(target=self._context.architecture)
        try:
            kernels = compile_ahead(CallSpec.model_validate(order["call"]))
            used = [kernel.to_json() for kernel in kernels]
        except CandidateError as error:
            used = executable.build.resources.get("kernels", [])
            found = found.model_copy(update={"status": error.status, "fault": error.detail})
        found = found.model_copy(update={"build": executable.build, "kernels": tuple(used)})
        return {"compiled": found.to_json()}

    def _listing(self, order: Reply, fds: list[int]) -> Reply:
        """Return what the compiler made of a call; without one, only say whether there is such."""
        executable, kind = self._executables[order["key"]], order["kind"]
        kinds = getattr(executable, "listing_kinds", ())
        if kind not in kinds:
            known = f"it has {' and '.join(kinds)}" if kinds else "it has none"
            name = executable.build.backend
            raise CandidateError(
                Status.UNSUPPORTED, f"the {name} backend has no listing {kind!r}; {known}"
            )
        if order["call"] is None:
            return {"listings": {}}
        listings = executable.listing(kind, CallSpec.model_validate(order["call"]))  # type: ignore[attr-defined]
        size = sum(map(len, listings.values()))
        if size > MOST_BYTES // 2:
            raise CandidateError(
                Status.UNSUPPORTED, f"its {kind} has {size >> 20} MB, too many to hand over"
            )
        return {"listings": listings}


def main(descriptor: int, memory_limit: int, hooks: Hooks | None = None) -> None:
    """Serve on an inherited socket until the judge is gone; ``hooks``: loaded before the fork."""
    die_with_parent()
    limit_resources(memory_limit)
    if (folders := confined_to()) and not confine(folders) and landlock_version():
        sys.stderr.write("kopt: Landlock refused to confine this process\n")
    channel = Channel(socket.socket(fileno=descriptor))
    try:
        CandidateServer(channel, hooks).serve()
    except ChannelClosedError:
        return


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
