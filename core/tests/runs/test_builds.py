from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kopt.errors import RunStoreError
from kopt.runs.builds import BuildCache


def build(cache: BuildCache, text: str = "binary") -> Path:
    folder = cache.scratch()
    (folder / "kernel.so").write_text(text)
    (folder / "logs").mkdir()
    (folder / "logs" / "build.log").write_text("ok")
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> BuildCache:
    return BuildCache(tmp_path / "builds")


def test_a_build_is_kept_and_found_again(cache: BuildCache, tmp_path: Path) -> None:
    assert cache.cached("a key/with: anything") is None
    folder = build(cache)
    kept = cache.keep("a key/with: anything", folder)
    assert not folder.exists()
    other = BuildCache(tmp_path / "builds")
    assert other.cached("a key/with: anything") == kept
    assert (kept / "kernel.so").read_text() == "binary"
    assert json.loads((kept / "manifest.json").read_text())["schema"] == 1
    assert other.cached("another key") is None


def _append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def _link(path: Path) -> None:
    target = path.rename(path.parent.parent / "target")
    path.symlink_to(target)


def _replace_by_file(entry: Path) -> None:
    entry.rename(entry.with_name("away"))
    entry.write_text("")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a file was changed": lambda entry: _append(entry / "kernel.so"),
    "a file in a folder was changed": lambda entry: _append(entry / "logs" / "build.log"),
    "a file is missing": lambda entry: (entry / "kernel.so").unlink(),
    "a file was added": lambda entry: (entry / "extra").write_text(""),
    "a file became a link": lambda entry: _link(entry / "kernel.so"),
    "no manifest": lambda entry: (entry / "manifest.json").unlink(),
    "an empty manifest": lambda entry: (entry / "manifest.json").write_text(""),
    "a torn manifest": lambda entry: (entry / "manifest.json").write_text('{"schema": 1, "fi'),
    "no text in the manifest": lambda entry: (entry / "manifest.json").write_bytes(b"\xff\0"),
    "another schema": lambda entry: (entry / "manifest.json").write_text(
        (entry / "manifest.json").read_text().replace('"schema": 1', '"schema": 2')
    ),
    "another key's entry": lambda entry: (entry / "manifest.json").write_text(
        (entry / "manifest.json").read_text().replace('"key"', '"other"')
    ),
    "a file in the entry's place": lambda entry: _replace_by_file(entry),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_entry_is_removed_and_can_be_built_again(cache: BuildCache, name: str) -> None:
    entry = cache.keep("key", build(cache))
    DAMAGES[name](entry)
    assert cache.cached("key") is None
    assert not entry.exists()
    assert cache.keep("key", build(cache, "again")) == entry
    found = cache.cached("key")
    assert found is not None
    assert (found / "kernel.so").read_text() == "again"


def test_keeping_over_a_damaged_entry_replaces_it(cache: BuildCache) -> None:
    entry = cache.keep("key", build(cache))
    _append(entry / "kernel.so")
    cache.keep("key", build(cache, "again"))
    assert (entry / "kernel.so").read_text() == "again"


def test_the_first_of_two_builds_of_a_key_stays(cache: BuildCache) -> None:
    first = cache.keep("key", build(cache, "first"))
    late = build(cache, "late")
    assert cache.keep("key", late) == first
    assert (first / "kernel.so").read_text() == "first"
    assert not late.exists()


def test_a_build_from_elsewhere_is_kept_too(cache: BuildCache, tmp_path: Path) -> None:
    shm = Path("/dev/shm")
    elsewhere = (shm if os.access(shm, os.W_OK) else tmp_path) / f"kopt-test-{os.getpid()}"
    elsewhere.mkdir()
    (elsewhere / "kernel.so").write_text("binary")
    entry = cache.keep("key", elsewhere)
    assert cache.cached("key") == entry
    assert not elsewhere.exists()


def test_links_and_manifests_are_refused(cache: BuildCache) -> None:
    folder = build(cache)
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(RunStoreError, match=r"may not hold a file 'manifest.json'"):
        cache.keep("key", folder)
    (folder / "manifest.json").unlink()
    (folder / "link").symlink_to(folder / "kernel.so")
    with pytest.raises(RunStoreError, match="is a link"):
        cache.keep("key", folder)
    assert cache.cached("key") is None


def test_a_cache_that_cannot_be_written_costs_the_reuse_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = BuildCache(tmp_path / "file")
    folder = tmp_path / "build"
    folder.mkdir()
    (folder / "kernel.so").write_text("binary")
    assert cache.cached("key") is None
    assert cache.keep("key", folder) == folder
    assert [path.name for path in folder.iterdir()] == ["kernel.so"]


def test_what_killed_processes_left_is_swept_after_a_day(tmp_path: Path) -> None:
    old = BuildCache(tmp_path).scratch()
    new = BuildCache(tmp_path).scratch()
    os.utime(old, (time.time() - 90000,) * 2)
    BuildCache(tmp_path).scratch()
    assert not old.exists()
    assert new.exists()


HAMMER = """
import random, sys
from pathlib import Path
from kopt.runs.builds import BuildCache
cache, chance = BuildCache(Path(sys.argv[1])), random.Random(int(sys.argv[2]))
for _ in range(300):
    key = str(chance.randrange(3))
    entry = cache.cached(key)
    if entry is None:
        folder = cache.scratch()
        (folder / "a").write_text(key * 1000)
        entry = cache.keep(key, folder)
    elif chance.random() < 0.3:
        try:
            (entry / "a").write_text("damaged")
        except FileNotFoundError:
            pass  # another process has just removed the damaged entry
"""


def test_processes_that_build_and_damage_at_once_never_fail(tmp_path: Path) -> None:
    running = [
        subprocess.Popen([sys.executable, "-c", HAMMER, str(tmp_path), str(seed)])
        for seed in range(3)
    ]
    assert [process.wait() for process in running] == [0, 0, 0]
    cache = BuildCache(tmp_path)
    for key in "012":
        found = cache.cached(key)
        assert found is None or (found / "a").read_text() == key * 1000
    assert len(list((tmp_path / ".scratch").iterdir())) == 0
