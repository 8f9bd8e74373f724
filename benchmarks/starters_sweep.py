"""Every kernel that kopt-starters proposes for a level of KernelBench, beside eager PyTorch.

python benchmarks/starters_sweep.py --root KernelBench --level 1 --dtype float32 \
    -o benchmarks/results/NAME.json [--ids 1-20] [--processes 12] [--knobs 20]

A look at all kernels of a level in about a minute, on a GPU: each at its default knobs, with its
error and a median of CUDA events (the L2 cache is overwritten before each call). Errors are root
mean squares over that of the result without TF32; eager PyTorch has one too. It is no verdict:
nothing is verified, tuned or timed by kopt's rules. With --knobs each kernel gets so many seconds to
try its knobs, one at a time from the best so far, also half and twice as far as their choices go (where
there is a choice: one alone is all that a kernel is right for): that shows which defaults and choices
are off. KernelBench is not part of this repository:
clone ScalingIntelligence/KernelBench and give its folder.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import fcntl
import gc
import importlib.util
import json
import multiprocessing
import platform
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

_STRUCTURES = 8
_MOST_CALLS = 20
_TIMED_MS = 60.0
_FLUSHED_BYTES = 256 << 20
_CHUNK = 1 << 27


def main() -> None:
    """Look at each problem: many compile at a time, one uses the device."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="checkout of KernelBench")
    parser.add_argument("--level", type=int, default=1)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--ids", help="as 1-20,33")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--knobs", type=float, default=0.0, help="seconds for each kernel's knobs")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    from kopt.suites.kernelbench import kernelbench_suite
    from kopt.suites.problem import parse_ids

    suite = kernelbench_suite(given.root, given.level, given.dtype)
    chosen = suite.chosen(parse_ids(given.ids) if given.ids else None)
    jobs = [
        Job(given.root, given.level, given.dtype, int(problem.id), given.knobs)
        for problem in chosen
    ]
    rows: list[dict[str, Any]] = []
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        for row in pool.imap_unordered(_look, jobs):
            rows.append(row)
            _tell(row)
    rows.sort(key=lambda row: int(row["problem"].partition("_")[0]))
    head = {**_about(), "level": given.level, "dtype": given.dtype}
    lines = ",\n".join(json.dumps(row) for row in rows)
    text = json.dumps(head, indent=1)[:-2] + f',\n "problems": [\n{lines}\n]\n}}\n'
    given.output.write_text(text, encoding="utf-8")


def _about() -> dict[str, Any]:
    import torch

    return {
        "recorded": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name(), "python": platform.python_version(),
        "torch": torch.__version__, "triton": version("triton"), "kopt": version("kopt"),
    }  # fmt: skip


def _tell(row: dict[str, Any]) -> None:
    print(row["problem"], row.get("eager_ms"), row.get("failed", ""), flush=True)
    for found in row["candidates"]:
        said = f"{found['ms']:.4f} ms, error {found['error']:.2g}" if "ms" in found else "failed"
        print(f"    {said}  {found['idea']}", flush=True)
        for values, ms in sorted(found.get("tried", []), key=lambda pair: float(pair[1]))[:3]:
            print(f"        {ms:.4f} ms  {values}", flush=True)


class Job(NamedTuple):
    """One problem to look at."""

    root: Path
    level: int
    dtype: str
    number: int
    knobs: float


def _look(job: Job) -> dict[str, Any]:
    """Look at one problem; whatever fails is in the row."""
    from kopt.suites.kernelbench import kernelbench_suite

    (chosen,) = kernelbench_suite(job.root, job.level, job.dtype).chosen([job.number])
    row: dict[str, Any] = {"problem": chosen.name, "candidates": []}
    with tempfile.TemporaryDirectory() as folder:
        try:
            _compare(chosen.load(), job, Path(folder), row)
        except Exception as error:  # noqa: BLE001 - a problem's code may raise anything; it is recorded
            row["failed"] = f"{type(error).__name__}: {error}"[:300]
    return row


def _compare(problem: Any, job: Job, folder: Path, row: dict[str, Any]) -> None:
    from kopt.model.device import Target
    from kopt_starters import Starters
    from kopt_torch.machine import find_device
    from kopt_torch.shapes import signature_by_shapes

    signature = signature_by_shapes(problem)
    target = Target(language="triton", device=find_device("cuda"))
    starters = Starters(Starters.Options(structures=_STRUCTURES))
    candidates = list(starters.kopt_propose(problem, signature, target, None))
    entries = [_entry(each, folder / f"kernel_{n}.py") for n, each in enumerate(candidates)]
    for candidate, entry in zip(candidates, entries, strict=True):
        for values in (candidate.chosen, *(_neighbours(candidate, {}) if job.knobs else [])):
            with contextlib.suppress(Exception):  # it fails again, and is recorded, when it runs
                _compile(values, entry, signature.first)
    module = _module(problem.reference.source, folder / "reference.py")
    lock = Path(tempfile.gettempdir()) / "kopt-starters-sweep.lock"
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        try:
            _on_device(module, job, signature.first, candidates, entries, row)
        finally:
            _give_memory_back()


def _give_memory_back() -> None:
    import torch

    gc.collect()
    with contextlib.suppress(RuntimeError):  # after a fault the device takes nothing any more
        torch.cuda.empty_cache()


def _module(source: str, path: Path) -> Any:
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _entry(candidate: Any, path: Path) -> Callable[..., Any]:
    entry: Callable[..., Any] = getattr(_module(candidate.source, path), candidate.entry)
    return entry


def _neighbours(candidate: Any, best: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield values with one knob other than in ``best``, which are the defaults unless given."""
    best = {**candidate.chosen, **best}
    for name, knob in candidate.knobs.items():
        choices = list(knob.choices)
        if len(choices) > 1 and all(isinstance(each, int) for each in choices) and min(choices) > 0:
            choices += [max(1, min(choices) // 2), 2 * max(choices)]
        for value in dict.fromkeys(choices):
            if value != best[name]:
                yield {**best, name: value}


def _compile(values: dict[str, Any], entry: Callable[..., Any], workload: Any) -> None:
    """Compile what a call launches, from shapes alone."""
    import torch

    from kopt_triton.ahead import compile_ahead
    from kopt_triton.architectures import named

    arguments = [
        torch.empty(a.tensor.shape, dtype=getattr(torch, a.tensor.dtype), device="meta")
        if a.tensor else a.value
        for a in workload.arguments
    ]  # fmt: skip

    def step() -> Any:
        return entry(*arguments, **values)

    major, minor = torch.cuda.get_device_capability()
    compile_ahead(lambda call, opened: step, None, named(f"sm_{major}{minor}"), {})  # type: ignore[arg-type]


def _on_device(
    module: Any,
    job: Job,
    workload: Any,
    candidates: list[Any],
    entries: list[Callable[..., Any]],
    row: dict[str, Any],
) -> None:
    import torch

    torch.manual_seed(0)
    with torch.no_grad(), torch.device("cuda"):
        kind = getattr(torch, job.dtype)
        model = module.Model(*module.get_init_inputs()).cuda().to(kind).eval()
        inputs = [_moved(value, kind) for value in module.get_inputs()]
        state = dict(model.state_dict())
        rest = iter(inputs)
        arguments = [state[a.name] if a.name in state else next(rest) for a in workload.arguments]
        scratch = torch.empty(_FLUSHED_BYTES // 4, dtype=torch.int32)
        expected = model(*inputs)
        row["eager_ms"] = _median_ms(lambda: model(*inputs), scratch)
        torch.backends.cudnn.allow_tf32 = False
        strict = model(*inputs)
        torch.backends.cudnn.allow_tf32 = True
        row["eager_error"] = _error(expected, strict)
        for candidate, entry in zip(candidates, entries, strict=True):
            found: dict[str, Any] = {"idea": candidate.idea, "knobs": dict(candidate.chosen)}
            row["candidates"].append(found)
            try:
                result = entry(*arguments, **candidate.chosen)
                found["error"] = _error(result, strict)
                del result
                found["ms"] = _median_ms(partial(entry, *arguments, **candidate.chosen), scratch)
                if job.knobs:
                    found["tried"] = _tried(candidate, entry, arguments, found["ms"], scratch, job)
            except Exception:  # noqa: BLE001 - a kernel that fails is a row as well
                found["failed"] = traceback.format_exc()[-300:]


def _tried(
    candidate: Any,
    entry: Callable[..., Any],
    arguments: list[Any],
    ms: float,
    scratch: Any,
    job: Job,
) -> list[tuple[dict[str, Any], float]]:
    """Return values of knobs with their times, of a walk from the defaults to what is faster."""
    until, best, found = time.monotonic() + job.knobs, dict(candidate.chosen), {}
    found[json.dumps(best)] = ms
    while True:
        start = best
        for values in _neighbours(candidate, start):
            key = json.dumps(values)
            if key in found or time.monotonic() > until:
                continue
            found[key] = float("inf")
            with contextlib.suppress(Exception):  # it does not fit, or is for other shapes
                found[key] = _median_ms(partial(entry, *arguments, **values), scratch)
            if found[key] < ms:
                best, ms = values, found[key]
        if best is start or time.monotonic() > until:
            return [(json.loads(key), each) for key, each in found.items() if each < float("inf")]


def _moved(value: Any, kind: Any) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    return value.cuda().to(kind) if value.is_floating_point() else value.cuda()


def _median_ms(call: Callable[[], Any], scratch: Any) -> float:
    import torch

    began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def once() -> float:
        scratch.zero_()
        began.record()
        call()
        ended.record()
        torch.cuda.synchronize()
        return float(began.elapsed_time(ended))

    once()
    calls = max(3, min(_MOST_CALLS, int(_TIMED_MS / max(once(), 0.01))))
    times = sorted(once() for _ in range(calls))
    return times[calls // 2]


def _error(result: Any, exact: Any) -> float:
    """Return the root mean square of the difference over that of ``exact``."""
    if result.shape != exact.shape or result.dtype != exact.dtype:
        raise ValueError(
            f"{result.dtype} {tuple(result.shape)}, not {exact.dtype} {tuple(exact.shape)}"
        )
    off = total = 0.0
    mine, right = result.reshape(-1), exact.reshape(-1)
    for start in range(0, right.numel(), _CHUNK):
        here = right[start : start + _CHUNK].double()
        off += float((mine[start : start + _CHUNK].double() - here).square().sum())
        total += float(here.square().sum())
    return float((off / max(total, 1e-300)) ** 0.5)


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"{time.monotonic() - began:.0f} s")
