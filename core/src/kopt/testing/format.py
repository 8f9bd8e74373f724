"""What a problem format has to do (needs pytest)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from kopt.errors import ProblemError
from kopt.model.problem import Problem
from kopt.testing.plugin import PluginContract

_FOREIGN: dict[str, bytes] = {
    "notes.txt": b"a problem? no.\n",
    "empty.py": b"",
    "other.py": b"import json\n\ndef main():\n    return json.dumps({})\n",
    "broken.py": b"def (:\n",
    "settings.toml": b'[tool]\nname = "other"\n',
    "data.json": b'{"shape": [1, 2]}',
    "image.png": b"\x89PNG\r\n\x1a\n\0\0",
    "README": b"\0\1\2",
}


class FormatContract(PluginContract):
    """A format reads its own files, refuses them with a reason where wrong, and leaves others."""

    role: ClassVar[str] = "format"

    def good(self, folder: Path) -> Sequence[Path]:
        """Write at least one problem below ``folder`` and return its path."""
        raise NotImplementedError("write a problem of this format and return its path")

    def wrong(self, folder: Path) -> Sequence[Path]:
        """Write files that are of this format, but wrong, below ``folder``; return their paths."""
        raise NotImplementedError("write wrong problems of this format and return their paths")

    def load(self, path: Path) -> Problem | None:
        """Load one path with a new instance."""
        return self.hooks().kopt_load_problem(path)

    def test_it_reads_its_own_files(self, tmp_path: Path) -> None:
        """A problem comes back, the same each time, with its source in it."""
        paths = list(self.good(tmp_path))
        assert paths
        for path in paths:
            problem = self.load(path)
            assert problem is not None
            again = self.load(path)
            assert again == problem
            assert again.id == problem.id
            assert problem.reference.source
            assert Problem.model_validate(problem.to_json()) == problem

    def test_it_leaves_foreign_files_to_others(self, tmp_path: Path) -> None:
        """None, not an error: another format may know them."""
        for name, content in _FOREIGN.items():
            path = tmp_path / name
            path.write_bytes(content)
            assert self.load(path) is None, name
        folder = tmp_path / "folder"
        folder.mkdir()
        assert self.load(folder) is None

    def test_wrong_files_are_refused_with_a_reason(self, tmp_path: Path) -> None:
        """ProblemError, whose message names the file."""
        paths = list(self.wrong(tmp_path))
        assert paths
        for path in paths:
            with pytest.raises(ProblemError) as caught:
                self.load(path)
            assert path.stem in str(caught.value), path
