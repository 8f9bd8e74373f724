"""The journal of a run: one JSON object a line, only ever appended to, on the disk before it counts."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from kopt.errors import RunStoreError
from kopt.runs.events import EVENT, Entry, candidates_of
from kopt.runs.files import finite, sync_folder
from kopt.runs.sources import SourceStore

if TYPE_CHECKING:
    from kopt.model.budget import Spend
    from kopt.runs.events import Event

SCHEMA = 1
FILE_NAME = "journal.jsonl"


@dataclass(frozen=True)
class JournalContent:
    """What a journal holds."""

    entries: tuple[Entry, ...]
    size: int
    """Bytes up to the end of the last whole line; what follows was torn by a kill."""


def read_journal(folder: Path, sources: SourceStore | None = None) -> JournalContent:
    """Read the journal of a run's folder; a missing one is empty.

    A last line without its end, or that is no JSON, was being written when the process died: it
    never counted and is left out. Raises RunStoreError for any other damage, for another schema
    and for a source that is missing or changed.
    """
    path = folder / FILE_NAME
    try:
        content = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise RunStoreError(f"{path} cannot be read: {error}") from error
    sources = sources or SourceStore(folder / "sources")
    lines = content.split(b"\n")[:-1]
    entries: list[Entry] = []
    size = 0
    for number, line in enumerate(lines, start=1):
        where = f"{path}, line {number}"
        try:
            raw = _parse(line)
        except ValueError as error:
            if number == len(lines):
                break
            raise _damaged(where, f"it is no JSON object ({error})") from error
        entries.append(_entry(raw, number - 1, where, sources))
        size += len(line) + 1
    return JournalContent(tuple(entries), size)


def _parse(line: bytes) -> dict[str, Any]:
    raw = json.loads(line)
    if not isinstance(raw, dict):
        raise ValueError(f"a {type(raw).__name__}")
    return raw


def _entry(raw: dict[str, Any], seq: int, where: str, sources: SourceStore) -> Entry:
    schema = raw.pop("schema", None)
    if schema != SCHEMA:
        raise RunStoreError(
            f"{where}: schema {schema!r}, and this kopt reads schema {SCHEMA} only; "
            "use the kopt version that wrote it (in run.json)"
        )
    if raw.get("seq") != seq:
        raise _damaged(where, f"entry {raw.get('seq')!r} stands where entry {seq} belongs")
    try:
        data = raw.pop("data")
        for candidate in _candidate_places(str(raw.get("kind")), data):
            candidate["source"] = sources.load(candidate.pop("source_id"), candidate["language"])
        event = {**data, "kind": raw.pop("kind")}
        return Entry.model_validate({**raw, "event": event})
    except ValidationError as error:
        raise _damaged(where, first_fault(error)) from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _damaged(where, f"a field is missing or of another kind ({error})") from error
    except RunStoreError as error:
        raise RunStoreError(f"{where}: {error}") from error


def first_fault(error: Exception) -> str:
    """Return what is wrong, in one line."""
    if not isinstance(error, ValidationError):
        return str(error)
    fault = error.errors()[0]
    return f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"


def _damaged(where: str, what: str) -> RunStoreError:
    return RunStoreError(
        f"{where} is damaged: {what}; restore the file from a copy, or start a new run"
    )


def _candidate_places(kind: str, data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the candidates in an event's JSON, in the order of events.candidates_of."""
    match kind:
        case "opened":
            pairs = [(b["candidate"], b["evaluation"]["candidate"]) for b in _baselines(data)]
            return [candidate for pair in pairs for candidate in pair]
        case "proposed":
            return list(data["candidates"])
        case "evaluated" | "confirmed":
            return [data["evaluation"]["candidate"]]
        case _:
            return []


def _baselines(data: dict[str, Any]) -> list[dict[str, Any]]:
    return list(data["opening"]["baselines"])


class Journal:
    """A journal open for appending; whoever opens it holds the run's lock."""

    def __init__(self, folder: Path, sources: SourceStore | None = None) -> None:
        """Read what is there and cut a torn end off. Raises RunStoreError."""
        self._path = folder / FILE_NAME
        self.sources = sources or SourceStore(folder / "sources")
        content = read_journal(folder, self.sources)
        self.entries = content.entries
        """What the journal held when it was opened."""
        self._end = len(content.entries), content.size
        """Entries and bytes that count."""
        self._writing = b""
        try:
            self._handle = os.open(
                self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644
            )
            os.ftruncate(self._handle, content.size)
            os.fsync(self._handle)
            sync_folder(folder)
        except OSError as error:
            raise RunStoreError(f"{self._path} cannot be written: {error}") from error

    def append(self, event: Event, spend: Spend) -> Entry:
        """Record an event; when this returns it is on the disk.

        Raises RunStoreError where it cannot be stored, or could not be read again: nothing of it
        is left in the journal then.
        """
        try:
            self._settle()
        except OSError as error:
            raise self._unwritable(error) from error
        seq, size = self._end
        entry = Entry(seq=seq, time=time.time(), event=event, spend=spend)
        line = self._writing = self._line(entry)
        try:
            if os.write(self._handle, line) != len(line):
                raise OSError("the disk took a part of the line only")
            os.fsync(self._handle)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._handle, size)
            raise self._unwritable(error) from error
        self._end = seq + 1, size + len(line)
        self._writing = b""
        return entry

    def _settle(self) -> None:
        """Count or cut what an interrupt left uncounted; Ctrl-C may strike between any two steps."""
        seq, size = self._end
        found = os.fstat(self._handle).st_size
        if self._writing and found == size + len(self._writing):
            self._end = seq + 1, found
        elif found != size:
            os.ftruncate(self._handle, size)
        self._writing = b""

    def _unwritable(self, error: OSError) -> RunStoreError:
        return RunStoreError(
            f"{self._path} cannot be written: {error}; free some space, then kopt resume"
        )

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    def _line(self, entry: Entry) -> bytes:
        candidates = candidates_of(entry.event)
        data = finite(EVENT.dump_python(entry.event, mode="json"))
        kind = data.pop("kind")
        for place, candidate in zip(_candidate_places(kind, data), candidates, strict=True):
            del place["source"]
            place["source_id"] = self.sources.keep(candidate)
        raw = {
            "schema": SCHEMA, "seq": entry.seq, "time": entry.time, "kind": kind, "data": data,
            "spend": finite(entry.spend.to_json()),
        }  # fmt: skip
        line = json.dumps(raw, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        self._check(line, entry, [candidate.id for candidate in candidates])
        return line

    def _check(self, line: bytes, entry: Entry, ids: list[str]) -> None:
        """Refuse what could not be read again: it would make the whole run unreadable."""
        where = f"{self._path}, new line {entry.seq + 1}"
        again = _entry(_parse(line), entry.seq, where, self.sources)
        changed = [c for c, old in zip(candidates_of(again.event), ids, strict=True) if c.id != old]
        if changed:
            raise RunStoreError(
                f"{where}: the settings of a candidate of strategy {changed[0].strategy!r} hold a "
                f"value that JSON cannot carry ({changed[0].settings!r}); "
                "use text, finite numbers, true, false, lists or tables in its kopt header"
            )
