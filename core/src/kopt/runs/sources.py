"""Candidate sources, stored once each under the hash of their text."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kopt.errors import RunStoreError
from kopt.model.candidate import Candidate
from kopt.model.kernel_file import SUFFIX_OF
from kopt.runs.files import write_atomically

# A model's answer can hold half of a surrogate pair; it must not cost the run its journal.
_ERRORS = "surrogatepass"


def source_id(source: str) -> str:
    """Return the first 16 hex digits of the SHA-256 of a source's UTF-8 bytes."""
    return hashlib.sha256(source.encode(errors=_ERRORS)).hexdigest()[:16]


class SourceStore:
    """The folder ``sources`` of a run; every text is read and checked once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, str] = {}

    def path(self, identity: str, language: str) -> Path:
        """Return where a source lies."""
        return self._folder / f"{identity}{SUFFIX_OF.get(language, '.txt')}"

    def keep(self, candidate: Candidate) -> str:
        """Store a candidate's source and return its id. Raises RunStoreError."""
        identity = source_id(candidate.source)
        path = self.path(identity, candidate.language)
        if self._known.get(path.name) == candidate.source:
            return identity
        try:
            # Not when it is there: a copy damaged before this run was resumed is replaced.
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, candidate.source.encode(errors=_ERRORS))
        except OSError as error:
            raise RunStoreError(
                f"cannot store a source: {error}; free some space, then kopt resume"
            ) from error
        self._known[path.name] = candidate.source
        return identity

    def load(self, identity: str, language: str) -> str:
        """Return a source. Raises RunStoreError where it is missing or not what was stored."""
        path = self.path(identity, language)
        if path.name in self._known:
            return self._known[path.name]
        try:
            content = path.read_bytes()
        except OSError as error:
            raise RunStoreError(
                f"source {path} cannot be read: {error}; restore it, or start a new run"
            ) from error
        if hashlib.sha256(content).hexdigest()[:16] != identity:
            raise RunStoreError(
                f"source {path} was changed after it was evaluated: its text has another hash; "
                "restore it, or start a new run"
            )
        self._known[path.name] = content.decode(errors=_ERRORS)
        return self._known[path.name]
