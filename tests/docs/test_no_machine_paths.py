"""Nothing in the repository depends on, or tells of, the machine that it was written on."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

HOME = re.compile(r"(?<![\w.~/-])/(?:home|root|Users)/[\w.]+")
TEXT = {".py", ".md", ".toml", ".txt", ".json", ".jsonl", ".cpp", ".cu", ".yml", ".cfg", ""}


def files(root: Path) -> list[Path]:
    """Return the files that are, or would be, committed; all of them outside of git."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return [root / name for name in done.stdout.split("\0") if name and (root / name).is_file()]
    left = re.compile(r"^(\.venv.*|\.kopt|\..*_cache|__pycache__|dist|build|\.git|\.hypothesis)$")
    return [
        path for folder, _, names in os.walk(root) for path in (Path(folder) / n for n in names)
        if not any(left.match(part) for part in path.relative_to(root).parts)
    ]  # fmt: skip


def test_no_file_names_a_home_folder_or_this_checkout(root: Path) -> None:
    seen = 0
    for path in files(root):
        if path.suffix not in TEXT or path == Path(__file__):
            continue
        seen += 1
        text = path.read_text(encoding="utf-8", errors="replace")
        found = HOME.search(text)
        assert found is None, f"{path} names {found and found[0]}"
        assert str(root) not in text, f"{path} names this checkout"
    assert seen > 100


def test_the_pattern_finds_what_it_is_for() -> None:
    assert HOME.search('"folder": "/home/somebody/kopt"')
    assert not HOME.search("see ~/.cache/kopt, /usr/bin/g++ and src/root/x")
