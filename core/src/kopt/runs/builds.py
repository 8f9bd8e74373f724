"""The build cache: finished builds that later candidates, runs and processes reuse."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from kopt.env import plain_temporary
from kopt.errors import RunStoreError

SCHEMA = 1
_MANIFEST = "manifest.json"
_ANEW = "anew"
_STALE_SECONDS = 24 * 3600.0


@contextmanager
def emptied(cache: Path) -> Iterator[Path]:
    """Give an empty folder in a build cache, for what is to be built anew; it is removed afterwards.

    What a process that was killed left of such folders is removed too.
    """
    for left in cache.glob(f"{_ANEW}-*"):
        pid = left.name.split("-")[1]
        if not (pid.isdecimal() and psutil.pid_exists(int(pid))):
            shutil.rmtree(left, ignore_errors=True)
    prefix = f"{_ANEW}-{os.getpid()}-"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=prefix, dir=cache))
    except OSError:  # a cache that cannot be written
        made = Path(tempfile.mkdtemp(prefix=prefix, dir=plain_temporary()))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


class BuildCache:
    """A folder of builds, safe under any number of processes.

    An entry is a folder that was renamed into place whole, and is used only while every file in it
    has the hash that its manifest says. It may be deleted at any time.
    """

    def __init__(self, root: Path) -> None:
        """``root`` is made when it is first needed."""
        self._root = root
        self._swept = False

    def cached(self, key: str) -> Path | None:
        """Return the folder of an earlier build of ``key`` whose files are intact, or None.

        A damaged entry is removed.
        """
        entry = self._entry(key)
        if _intact(entry, key):
            return entry
        if entry.exists() or entry.is_symlink():
            with suppress(OSError), self._locked():
                # Looked at again: another process may have put a good one there meanwhile.
                if _intact(entry, key):
                    return entry
                self._remove(entry)
        return None

    def keep(self, key: str, folder: Path) -> Path:
        """Move a finished build into the cache, atomically, and return where it lies now.

        Where another process was first, its build is returned and ``folder`` is removed. Where the
        cache cannot be written, ``folder`` stays and is returned: that costs the reuse only.
        Raises RunStoreError where ``folder`` holds a ``manifest.json`` or a link.
        """
        files = _hashes(folder)
        if _MANIFEST in files:
            raise RunStoreError(
                f"a build may not hold a file {_MANIFEST!r}: the cache needs that name; "
                "let the backend give it another one"
            )
        entry = self._entry(key)
        try:
            moved = self._same_filesystem(folder)
            (moved / _MANIFEST).write_text(json.dumps(_manifest(key, files)), encoding="utf-8")
            with self._locked():
                if _intact(entry, key):
                    shutil.rmtree(moved, ignore_errors=True)
                    return entry
                self._remove(entry)
                moved.rename(entry)
        except OSError:
            (folder / _MANIFEST).unlink(missing_ok=True)
            return folder
        if moved != folder:
            shutil.rmtree(folder, ignore_errors=True)
        return entry

    def scratch(self) -> Path:
        """Return a new empty folder for building in, on the cache's file system."""
        place = self._root / ".scratch"
        place.mkdir(parents=True, exist_ok=True)
        if not self._swept:
            self._swept = True
            _sweep(place)
        return Path(tempfile.mkdtemp(prefix="build-", dir=place))

    def _entry(self, key: str) -> Path:
        return self._root / hashlib.sha256(key.encode()).hexdigest()[:32]

    def _same_filesystem(self, folder: Path) -> Path:
        """Return ``folder``, or a copy of it where it could not be renamed into the cache."""
        self._root.mkdir(parents=True, exist_ok=True)
        if folder.stat().st_dev == self._root.stat().st_dev:
            return folder
        copy = self.scratch()
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        return copy

    def _remove(self, entry: Path) -> None:
        """Remove an entry; renamed first, so that nobody finds half of it."""
        if entry.is_symlink() or entry.is_file():
            entry.unlink()
        elif entry.exists():
            grave = self.scratch()
            entry.rename(grave / "removed")
            shutil.rmtree(grave, ignore_errors=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one process at a time add and remove entries; reading needs no lock."""
        handle = os.open(self._root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _manifest(key: str, files: dict[str, str]) -> dict[str, object]:
    """Return what an entry must say of itself; ``files`` is path within it to SHA-256."""
    return {"schema": SCHEMA, "key": key, "files": files}


def _intact(entry: Path, key: str) -> bool:
    path = entry / _MANIFEST
    try:
        said = json.loads(path.read_bytes()) if path.is_file() else None
        found = _hashes(entry)
    except (OSError, ValueError, RunStoreError):
        return False
    found.pop(_MANIFEST, None)
    return bool(said == _manifest(key, found))


def _hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file by its path in ``folder``. Raises RunStoreError for a link."""
    hashes: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise RunStoreError(f"{path} is a link, which the build cache does not keep; copy it")
        if path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            hashes[path.relative_to(folder).as_posix()] = digest
    return hashes


def _sweep(place: Path) -> None:
    """Remove what killed processes left behind a day ago or earlier."""
    for folder in place.iterdir():
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
