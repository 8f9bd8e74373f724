"""What a confined process can do to files and processes of others: nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kopt.env import candidate_environment
from kopt.worker.confinement import landlock_version

pytestmark = pytest.mark.skipif(not landlock_version(), reason="this system has no Landlock")

TRIES = """
import os, sys
from pathlib import Path
from kopt.env import confined_to
from kopt.worker.confinement import confine

outside = Path(sys.argv[1])
assert confine(confined_to())
{before}
try:
    {what}
except OSError as error:
    print(error.errno)
else:
    print("done")
"""
REFUSED = {
    "writing": "(outside / 'file').write_text('other')",
    "appending": "open(outside / 'file', 'a').write('more')",
    "cutting off": "os.truncate(outside / 'file', 0)",
    "removing": "(outside / 'file').unlink()",
    "moving in": "os.rename(outside / 'file', 'taken')",
    "moving out": "os.rename(Path('mine'), outside / 'mine')",
    "linking over": "os.symlink('/dev/null', outside / 'link')",
    "a folder": "(outside / 'folder').mkdir()",
    "a signal": "os.kill(os.getppid(), 0)",
    "another's memory": "open(f'/proc/{os.getppid()}/mem', 'rb')",
}
ALLOWED = {
    "reading": "assert (outside / 'file').read_text() == 'as it was'",
    "its home": "Path('new').write_text('x'); os.rename('new', 'tmp/moved'); Path('tmp/moved').unlink()",
    "the cache": "(Path(os.environ['TRITON_CACHE_DIR']) / 'kernel').write_text('x')",
    "shared memory": "open('/dev/shm/kopt-test', 'w').close(); os.unlink('/dev/shm/kopt-test')",
    "no output": "open('/dev/null', 'w').write('x')",
    "its own children": "import subprocess; p = subprocess.Popen(['sleep', '9']); p.kill(); p.wait()",
}


def tried(tmp_path: Path, what: str, before: str = "") -> str:
    """Return what came of something in a confined process, whose home and cache are apart."""
    home, cache, outside = (tmp_path / name for name in ("home", "cache", "outside"))
    for folder in (home, cache, outside):
        folder.mkdir()
    (outside / "file").write_text("as it was")
    (home / "mine").write_text("mine")
    done = subprocess.run(
        [sys.executable, "-c", TRIES.format(what=what, before=before), str(outside)], cwd=home,
        env=candidate_environment(home, cache, confined=True), capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert [p.name for p in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "as it was"
    return done.stdout.strip() or done.stderr


@pytest.mark.parametrize("name", REFUSED)
def test_it_leaves_others_alone(tmp_path: Path, name: str) -> None:
    if name == "a signal" and landlock_version() < 6:
        pytest.skip("this version confines no signals")
    assert tried(tmp_path, REFUSED[name]) in {"1", "13", "18"}


@pytest.mark.parametrize("name", ALLOWED)
def test_it_does_its_work(tmp_path: Path, name: str) -> None:
    assert tried(tmp_path, ALLOWED[name]) == "done"


def test_what_it_starts_is_confined_too(tmp_path: Path) -> None:
    child = "import subprocess; subprocess.run(['sh', '-c', f'echo x >> {outside}/file'])"
    tried(tmp_path, child)


def test_who_is_not_to_be_confined_is_not(tmp_path: Path) -> None:
    assert "KOPT_CONFINED_TO" not in candidate_environment(tmp_path, tmp_path)
