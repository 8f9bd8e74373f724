"""Events: where they go, in which form, at what cost, and that each is listed."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

import kopt
from kopt import logs

SOURCES = Path(kopt.__file__).parent
CALL = re.compile(r"\b_?log(?:ger)?\.(?:debug|info|warning|error)\(\s*([^\s,)]+)")


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test starts unconfigured and leaves nothing behind."""
    monkeypatch.setattr(logs, "_settings", logs._Settings())
    yield
    structlog.reset_defaults()


def logged() -> dict[str, str]:
    """Every first argument of a logging call in core, with the file it is in."""
    found = {}
    for path in SOURCES.rglob("*.py"):
        text = path.read_text()
        if "get_logger(" in text and path.name != "logs.py":
            found.update({name: path.name for name in CALL.findall(text)})
    return found


def test_every_event_that_is_written_is_listed() -> None:
    events = logged()
    assert events, "the search for events finds none"
    for literal, path in events.items():
        assert re.fullmatch(r'"[a-z]+(_[a-z]+)*"', literal), f"{path}: {literal} is no event name"
        assert literal.strip('"') in logs.EVENTS, f"{path}: add {literal} to kopt.logs.EVENTS"


def test_every_listed_event_is_written_and_explained() -> None:
    assert set(logs.EVENTS) == {literal.strip('"') for literal in logged()}
    assert all(meaning and "\n" not in meaning for meaning in logs.EVENTS.values())


def test_json_lines_carry_level_time_logger_and_fields() -> None:
    stream = io.StringIO()
    logs.configure("info", json=True, stream=stream)
    logs.get_logger("kopt.x").warning("plugin_failed", plugin="a", path=Path("b"), nan=None)
    line = json.loads(stream.getvalue())
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "plugin_failed",
        "level": "warning",
        "logger": "kopt.x",
        "plugin": "a",
        "path": "b",
        "nan": None,
    }


def test_text_names_event_and_fields_without_colours_in_a_file() -> None:
    stream = io.StringIO()
    logs.configure("info", stream=stream)
    logs.get_logger("kopt.x").error("plugin_retired", plugin="a")
    assert "plugin_retired" in stream.getvalue()
    assert "plugin=a" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_levels() -> None:
    stream = io.StringIO()
    logs.configure("warning", json=True, stream=stream)
    log = logs.get_logger("kopt.x")
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["c", "d"]
    with pytest.raises(ValueError, match="unknown log level 'loud'; levels are debug, info"):
        logs.configure("loud")  # type: ignore[arg-type]


def test_the_default_is_warnings_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    log = logs.get_logger("kopt.x")
    log.info("quiet")
    log.warning("plugin_failed")
    out, err = capsys.readouterr()
    assert out == ""
    assert "plugin_failed" in err
    assert "quiet" not in err


def test_a_program_that_has_set_up_structlog_gets_the_events() -> None:
    with structlog.testing.capture_logs() as captured:
        structlog.configure()
        logs.get_logger("kopt.x").warning("plugin_failed", plugin="a")
    assert captured == [
        {"event": "plugin_failed", "logger": "kopt.x", "plugin": "a", "log_level": "warning"}
    ]


def test_configuring_kopt_leaves_structlog_alone() -> None:
    logs.configure("debug", json=True, stream=io.StringIO())
    logs.get_logger("kopt.x").debug("plugin_failed")
    assert not structlog.is_configured()


def test_an_event_nobody_sees_does_not_import_structlog() -> None:
    code = (
        "import sys\n"
        "from kopt.logs import configure, get_logger\n"
        "configure('warning')\n"
        "get_logger('x').info('quiet')\n"
        "assert 'structlog' not in sys.modules\n"
        "get_logger('x').warning('loud')\n"
        "assert 'structlog' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "loud" in done.stderr
