from __future__ import annotations

import json
from pathlib import Path

import pytest

from kopt.cli.config import show_config
from kopt.config import resolve
from kopt.settings import SETTINGS


def test_json_has_every_value_with_its_origin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "kopt.toml"
    file.write_text("[strategy.autotune]\nbatch = 8\n")
    settings = resolve({"max_time": "20m"}, config_file=file, environment={"judges": "a,b"})
    assert show_config(settings, as_json=True) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["schema"] == 1
    assert list(shown["settings"]) == [*SETTINGS, "strategy.autotune.batch"]
    assert shown["settings"]["max_time"] == {"value": 1200.0, "origin": "--max-time"}
    assert shown["settings"]["judges"] == {"value": ["a", "b"], "origin": "KOPT_JUDGES"}
    assert shown["settings"]["strategy.autotune.batch"] == {"value": 8, "origin": f"{file}:2"}
    assert shown["settings"]["seed"] == {"value": 0, "origin": "default"}


def test_the_table_has_every_value_with_its_origin(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 100
    settings = resolve({"runs_dir": "a[red]b"}, [f"llm.replay.file={long}", "judge.j.l=[1]"])
    assert show_config(settings, as_json=False) == 0
    lines = capsys.readouterr().out.splitlines()
    table = {line.split()[0]: line.split()[1:] for line in lines if not line.startswith(" ")}
    assert set(SETTINGS) <= set(table)
    assert table["runs_dir"] == ["a[red]b", "--runs-dir"]
    assert table["strategies"] == ["starters,", "autotune", "default"]
    assert table["backend"] == ["none", "default"]
    assert table["judge.j.l"][0] == "[1]"
    assert "".join(lines).count("x") >= 100  # folded, never cut short
