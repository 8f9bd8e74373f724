"""``kopt plugins``: every status, text and JSON, and that the default imports nothing."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import Any

import pytest

from kopt.cli.plugins import show_plugins
from kopt.errors import UnknownPluginError

PREAMBLE = "import kopt\nprint('hello from an import')\n"

READY = PREAMBLE + (
    "class Ready:\n"
    "    @kopt.hookimpl\n"
    "    def kopt_check(self):\n"
    "        yield kopt.Check(name='compiler', state='ok')\n"
)
WARNS = READY.replace("'ok'", "'warn', detail='old', fix='get g++ 13'")
FAILS = READY.replace("'ok'", "'fail', detail='no g++', fix='apt install g++'")
RAISES = READY.replace("yield ", "raise OSError('no driver')\n        yield ")
MISSPELT = READY.replace("kopt_check", "kopt_chekc")
NEEDY = READY.replace(
    "    @kopt",
    "    class Options(kopt.Options):\n        model: str\n"
    "    def __init__(self, options): pass\n    @kopt",
)


@pytest.fixture
def installed(distributions: Any) -> Any:
    """One distribution for each status."""
    distributions.hide_others()
    sources = {
        "ready": READY, "warns": WARNS, "fails": FAILS, "raises": RAISES, "misspelt": MISSPELT,
        "needy": NEEDY, "exits": "raise SystemExit(3)", "cupy": "import no_such_cupy",
    }  # fmt: skip
    for name, source in sources.items():
        distributions.add(
            f"kopt-{name}",
            plugins={f"backend.{name}": f"{name}_mod:Ready"},
            modules={f"{name}_mod": source},
        )
    distributions.add("kopt-old", plugins={"backend.old": "ready_mod:Ready"}, requires=["kopt<0.1"])
    for dist in ("acme-kopt", "kopt-alpha"):
        distributions.add(dist, plugins={"backend.alpha": "ready_mod:Ready"})
    return distributions


def rows(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, str]]:
    data = json.loads(capsys.readouterr().out)
    return {f"{row['distribution']}:{row['name']}": row for row in data["plugins"]}


@pytest.mark.usefixtures("installed")
def test_without_check_metadata_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_plugins(None, check=False, as_json=True) == 0
    found = rows(capsys)
    assert found["kopt-exits:exits"] == {
        "role": "backend",
        "name": "exits",
        "distribution": "kopt-exits",
        "version": "0.1.0",
        "status": "installed",
        "detail": "",
    }
    assert found["kopt-old:old"]["status"] == "incompatible"
    assert found["kopt-old:old"]["detail"] == "needs kopt<0.1 (found 0.2.0)"
    assert found["acme-kopt:alpha"]["status"] == "conflict"
    assert found["acme-kopt:alpha"]["detail"] == "name it as acme-kopt:alpha"
    assert not {name for name in sys.modules if name.endswith("_mod")}


@pytest.mark.usefixtures("installed")
def test_check_keeps_each_failure_to_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_plugins(None, check=True, as_json=True) == 1
    found = {key.partition(":")[2]: (r["status"], r["detail"]) for key, r in rows(capsys).items()}
    assert found["ready"] == ("ready", "")
    assert found["warns"] == ("ready", "compiler: old; get g++ 13")
    assert found["fails"] == ("unavailable", "compiler: no g++; apt install g++")
    assert found["raises"] == ("broken", "kopt_check raised OSError: no driver")
    assert found["misspelt"][0] == "broken"
    assert "did you mean 'kopt_check'" in found["misspelt"][1]
    assert found["needy"][0] == "needs options"
    assert found["needy"][1].startswith("model: Field required")
    assert found["exits"][0] == "broken"
    assert found["exits"][1].startswith("failed to import: SystemExit: 3")
    assert found["cupy"][1].startswith("failed to import: ModuleNotFoundError: No module named 'no")
    assert found["old"][0] == "incompatible"
    assert found["alpha"][0] == "conflict"


@pytest.mark.usefixtures("installed")
def test_configured_options_are_used(capsys: pytest.CaptureFixture[str]) -> None:
    show_plugins(None, check=True, as_json=True, options={"backend.needy": {"model": "m"}})
    assert rows(capsys)["kopt-needy:needy"]["status"] == "ready"
    show_plugins(None, check=True, as_json=True, options={"backend.needy": {"modle": "m"}})
    assert rows(capsys)["kopt-needy:needy"]["status"] == "unavailable"


def test_to_need_options_is_no_fault(
    distributions: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A replay needs its recordings named: a full installation is in order all the same."""
    distributions.hide_others()
    distributions.add(
        "kopt-needy", plugins={"llm.needy": "needy_mod:Ready"}, modules={"needy_mod": NEEDY}
    )
    assert show_plugins("llm", check=True, as_json=False) == 0
    assert "needs options" in capsys.readouterr().out


def test_all_ready_is_success(distributions: Any, capsys: pytest.CaptureFixture[str]) -> None:
    distributions.hide_others()
    distributions.add(
        "kopt-ready", plugins={"llm.ready": "ready_mod:Ready"}, modules={"ready_mod": READY}
    )
    assert show_plugins("llm", check=True, as_json=False) == 0
    out, err = capsys.readouterr()
    assert out == (
        "ROLE  NAME   DISTRIBUTION      STATUS  DETAIL\nllm   ready  kopt-ready 0.1.0  ready\n"
    )
    assert "hello from an import" in err


@pytest.mark.usefixtures("installed")
def test_a_role_filters(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_plugins("judge", check=True, as_json=True) == 0
    assert rows(capsys) == {}
    with pytest.raises(UnknownPluginError, match="no role named 'judges'"):
        show_plugins("judges", check=False, as_json=False)


def test_a_terminal_gets_a_table_that_wraps(installed: Any) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(installed.site)!r})\n"
        "from kopt.cli.plugins import show_plugins\n"
        "show_plugins('backend', True, False)\n"
    )
    master, slave = pty.openpty()
    environment = {**os.environ, "COLUMNS": "100", "TERM": "xterm"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=slave, stderr=subprocess.PIPE, env=environment, timeout=60,
    )  # fmt: skip
    os.close(slave)
    assert done.returncode == 0, done.stderr
    written = b""
    try:
        while chunk := os.read(master, 65536):
            written += chunk
    except OSError:  # Linux says so at the end of a terminal whose other side is closed
        pass
    os.close(master)
    text = written.decode()
    assert "\x1b[" in text
    assert "acme-kopt:alpha" in text
    assert "hello from an import" not in text
