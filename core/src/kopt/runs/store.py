"""Run folders: made, found again, locked while somebody writes, and read."""

from __future__ import annotations

import difflib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pydantic import Field

from kopt._version import __version__
from kopt.errors import RunStoreError
from kopt.model.candidate import Candidate
from kopt.model.kernel_file import settled_source, suffix_of
from kopt.model.problem import Problem
from kopt.model.record import Record
from kopt.model.run import Run, RunConfig, RunStatus
from kopt.runs.files import finite, sync_folder, write_atomically
from kopt.runs.journal import Journal, first_fault, read_journal
from kopt.runs.lock import is_held, lock_run
from kopt.runs.sources import SourceStore, source_id
from kopt.runs.state import RunState, state_of

SCHEMA = 1
T = TypeVar("T", bound=Record)
_RUN, _RESULT, _SOURCES = "run.json", "result.json", "sources"


class RunFile(Record):
    """What ``run.json`` holds: all that was settled when the run was made."""

    id: str
    created: float
    """Seconds since 1970."""
    kopt: str
    """Version that made it."""
    plugins: dict[str, str] = Field(default_factory=dict)
    """``role.name`` to distribution and version."""
    problem: Problem
    config: RunConfig


@dataclass(frozen=True)
class RunSummary:
    """A run in a list."""

    id: str
    path: Path
    problem: str = ""
    created: float = 0.0
    """Seconds since 1970; 0 where the run cannot be read."""
    status: RunStatus | None = None
    """``running`` while a process holds it, ``interrupted`` where it did not end."""
    fault: str = ""
    """Why it cannot be read."""


class RunFolder:
    """One run's folder: ``run.json``, ``journal.jsonl``, ``sources/``, ``result.json``, ``lock``."""

    def __init__(self, path: Path) -> None:
        """Raises RunStoreError where ``path`` is no run, or of another schema."""
        self.path = path
        self.file = _read_run_file(path)
        self.sources = SourceStore(path / _SOURCES)

    @property
    def id(self) -> str:
        """The run's id, which is its folder's name unless the folder was renamed."""
        return self.file.id

    @classmethod
    def create(
        cls,
        root: Path,
        problem: Problem,
        config: RunConfig,
        plugins: Mapping[str, str] | None = None,
    ) -> RunFolder:
        """Make a new run's folder below ``root``.

        :param plugins: ``role.name`` to distribution and version.
        Raises RunStoreError where nothing can be written there.
        """
        created = time.time()
        try:
            _make_root(root)
            while True:
                identity = _new_id(problem.name, created)
                file = RunFile(
                    id=identity, created=created, kopt=__version__, plugins=dict(plugins or {}),
                    problem=problem, config=config,
                )  # fmt: skip
                if _place(root, file):
                    return cls(root / identity)
        except OSError as error:
            raise RunStoreError(
                f"cannot make a run folder in {root}: {error}; choose another with --runs-dir"
            ) from error

    @classmethod
    def open(cls, reference: str | Path, root: Path) -> RunFolder:
        """Find a run by its path, its id, the beginning of its id, or ``last``.

        Raises RunStoreError where there is none, or more than one.
        """
        return cls(_find(reference, root))

    @contextmanager
    def writing(self) -> Iterator[Journal]:
        """Hold the run alone and give its journal for appending.

        Raises RunStoreError where another process holds it, or where the journal is damaged.
        """
        handle = lock_run(self.path)
        try:
            journal = Journal(self.path, self.sources)
            try:
                yield journal
            finally:
                journal.close()
        finally:
            os.close(handle)

    def load(self) -> RunState:
        """Read what the run has done so far. Raises RunStoreError for a damaged folder."""
        entries = read_journal(self.path, self.sources).entries
        return state_of(self.file.problem, self.file.config, entries)

    def source_path(self, candidate: Candidate) -> Path:
        """Return where a journalled candidate's source lies."""
        return self.sources.path(source_id(candidate.source), candidate.language)

    def write_best(self, candidate: Candidate) -> Path:
        """Write a winner as ``best.<suffix>``, its knob values as the defaults, and return the path.

        Raises RunStoreError.
        """
        path = self.path / f"best{suffix_of(candidate.source, candidate.language)}"
        try:
            write_atomically(path, settled_source(candidate).encode())
        except OSError as error:
            raise RunStoreError(f"{path} cannot be written: {error}; free some space") from error
        return path

    def write_result(self, run: Run) -> Path:
        """Write ``result.json`` and return its path. Raises RunStoreError."""
        path = self.path / _RESULT
        try:
            write_atomically(path, _document(run))
        except OSError as error:
            raise RunStoreError(f"{path} cannot be written: {error}; free some space") from error
        return path

    def read_result(self) -> Run | None:
        """Return how the run ended; None where it has not. Raises RunStoreError."""
        path = self.path / _RESULT
        if not path.exists():
            return None
        run = _read_document(path, Run)
        source = run.source_path  # the folder may have been moved since
        if source is not None and source.is_relative_to(run.folder):
            source = self.path / source.relative_to(run.folder)
        return run.model_copy(update={"folder": self.path, "source_path": source})


def list_runs(root: Path) -> list[RunSummary]:
    """Return every run below ``root``, oldest first; one that cannot be read says why."""
    return [_summary(path) for path in _run_paths(root)]


# --- making -------------------------------------------------------------------------------------


def _make_root(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    home = root.absolute().parent
    ignore = home / ".gitignore"
    if home.name == ".kopt" and not ignore.exists():
        write_atomically(ignore, b"*\n")


def _new_id(problem: str, created: float) -> str:
    stamp = datetime.fromtimestamp(created, UTC).strftime("%Y%m%d-%H%M%S")
    name = re.sub(r"[^a-z0-9_]+", "-", problem.lower()).strip("-")[:40] or "run"
    return f"{stamp}-{name}-{secrets.token_hex(2)}"


def _place(root: Path, file: RunFile) -> bool:
    """Make the folder whole, then give it its name; False where that name is taken."""
    new = root / f".new-{file.id}-{os.getpid()}"
    new.mkdir()
    try:
        (new / _SOURCES).mkdir()
        write_atomically(new / _RUN, _document(file))
        if (root / file.id).exists():
            return False
        new.rename(root / file.id)
    except FileExistsError:
        return False
    finally:
        shutil.rmtree(new, ignore_errors=True)
    sync_folder(root)
    return True


def _document(record: Record) -> bytes:
    data = {"schema": SCHEMA, **finite(record.to_json())}
    return json.dumps(data, indent=2, allow_nan=False).encode() + b"\n"


def _read_run_file(path: Path) -> RunFile:
    file = path / _RUN
    if not file.is_file():
        raise RunStoreError(f"{path} is no run: it has no {_RUN}; kopt show lists the runs")
    return _read_document(file, RunFile)


def _read_document(path: Path, kind: type[T]) -> T:
    try:
        raw = json.loads(path.read_bytes())
        if not isinstance(raw, dict):
            raise ValueError(f"a JSON object is wanted, not a {type(raw).__name__}")
        schema = raw.pop("schema", None)
        if schema == SCHEMA:
            return kind.model_validate(raw)
    except (OSError, ValueError) as error:
        raise RunStoreError(
            f"{path} is damaged: {first_fault(error)}; restore it from a copy, or start a new run"
        ) from error
    raise RunStoreError(
        f"{path}: schema {schema!r}, and this kopt reads schema {SCHEMA} only; "
        f"use the kopt version that wrote it ({raw.get('kopt', 'in run.json')})"
    )


# --- finding ------------------------------------------------------------------------------------


def _run_paths(root: Path) -> list[Path]:
    """Return the folders below ``root`` that hold a run, oldest first."""
    if not root.is_dir():
        return []
    found = [path for path in root.iterdir() if not path.name.startswith(".")]
    found = [path for path in found if (path / _RUN).is_file()]
    # The id tells seconds; within one, run.json's own time decides.
    return sorted(found, key=lambda p: (p.name[:15], (p / _RUN).stat().st_mtime_ns, p.name))


def _find(reference: str | Path, root: Path) -> Path:
    paths = {path.name: path for path in _run_paths(root)}
    name = str(reference)
    if name in paths:
        return paths[name]
    if (Path(reference) / _RUN).is_file():
        return Path(reference)
    if name == "last" and paths:
        return list(paths.values())[-1]
    begins = [path for path in paths if name and path.startswith(name)]
    if len(begins) == 1:
        return paths[begins[0]]
    if begins:
        raise RunStoreError(f"{name!r} begins more than one run: {', '.join(begins)}; write more")
    raise RunStoreError(f"no run {name!r} in {root}; {_hint(name, list(paths))}")


def _hint(name: str, ids: list[str]) -> str:
    if not ids:
        return "there are no runs yet: kopt optimize makes one (or choose another --runs-dir)"
    close = difflib.get_close_matches(name, ids, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"the newest is {ids[-1]!r}"


def _summary(path: Path) -> RunSummary:
    try:
        folder = RunFolder(path)
        run = folder.read_result()
    except RunStoreError as error:
        return RunSummary(id=path.name, path=path, fault=str(error))
    status: RunStatus = "running" if is_held(path) else run.status if run else "interrupted"
    return RunSummary(
        id=folder.id, path=path, problem=folder.file.problem.name, created=folder.file.created,
        status=status,
    )  # fmt: skip
