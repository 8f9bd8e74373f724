"""What ``kopt doctor`` sees: every row that is not green says how to make it so."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from kopt.doctor import examine
from kopt.machine import gpu_names
from kopt.model.check import Check

BROKEN = "raise ImportError('libcuda.so.1 is missing')\n"
RAISES = (
    "import kopt\nprint('hello')\n"
    "class P:\n    @kopt.hookimpl\n    def kopt_check(self):\n        raise OSError('no driver')\n"
)
NEEDY = (
    "import kopt\n"
    "class P:\n    class Options(kopt.Options):\n        model: str\n"
    "    def __init__(self, options): pass\n"
)


@pytest.fixture(autouse=True)
def quiet_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("KOPT_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    gpu_names.cache_clear()
    yield
    gpu_names.cache_clear()


def rows() -> dict[str, Check]:
    return {check.name: check for check in examine()}


def test_every_row_that_is_not_ok_has_its_fix(distributions: Any) -> None:
    distributions.hide_others()
    found = rows()
    assert {"kopt", "python", "c++ compiler", "torch", "triton", "GPU", "ncu", "LLM endpoint",
            "cache", "confinement"} == set(found)  # fmt: skip
    assert all(check.fix for check in found.values() if check.state != "ok")


def test_torch_is_needed_and_triton_is_not(
    distributions: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributions.hide_others()
    # Looks for a distribution only where this test's own are.
    monkeypatch.setattr(sys, "path", [str(distributions.site)])
    found = rows()
    assert (found["torch"].state, found["triton"].state) == ("fail", "warn")
    assert found["torch"].fix == "pip install kopt-torch (it brings torch)"


def test_no_compiler_is_red(
    distributions: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributions.hide_others()
    monkeypatch.setenv("PATH", str(tmp_path))
    compiler = rows()["c++ compiler"]
    assert compiler.state == "fail"
    assert "apt install g++" in compiler.fix


def test_a_cache_that_cannot_be_written_is_red(
    distributions: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributions.hide_others()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KOPT_CACHE_DIR", str(tmp_path / "file" / "cache"))
    cache = rows()["cache"]
    assert cache.state == "fail"
    assert "KOPT_CACHE_DIR" in cache.fix


def test_plugins_that_cannot_work_are_rows(
    distributions: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    distributions.hide_others()
    for name, source in {"broken": BROKEN, "raises": RAISES, "needy": NEEDY}.items():
        distributions.add(
            f"kopt-{name}", plugins={f"backend.{name}": f"{name}_mod:P"},
            modules={f"{name}_mod": source},
        )  # fmt: skip
    found = rows()
    broken = found["backend broken: loading"]
    assert broken.state == "fail"
    assert "libcuda.so.1 is missing" in broken.detail
    assert broken.fix == "pip install -U kopt-broken, or uninstall it"
    assert found["backend raises: kopt_check"].state == "fail"
    assert "no driver" in found["backend raises: kopt_check"].detail
    assert found["backend needy: options"].state == "warn"
    assert "[backend.needy]" in found["backend needy: options"].fix
    out, err = capsys.readouterr()
    assert (out, "hello" in err) == ("", True)


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    """An LLM server that answers with the status in its ``answer``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(self.server.answer)  # type: ignore[attr-defined]
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("answer", "key", "state"),
    [(200, None, "ok"), (401, None, "fail"), (401, "k", "ok"), (500, None, "fail")],
)
def test_an_endpoint_is_asked(
    server: HTTPServer,
    distributions: Any,
    monkeypatch: pytest.MonkeyPatch,
    answer: int,
    key: str | None,
    state: str,
) -> None:
    distributions.hide_others()
    server.answer = answer  # type: ignore[attr-defined]
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    if key:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    assert rows()["LLM endpoint"].state == state


def test_an_endpoint_that_is_not_there_is_red(
    distributions: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributions.hide_others()
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    endpoint = rows()["LLM endpoint"]
    assert endpoint.state == "fail"
    assert "127.0.0.1:9" in endpoint.detail


@pytest.mark.parametrize("place", ["127.0.0.1:9", "host:bad"])
def test_a_password_in_the_url_is_not_shown(
    distributions: Any, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    distributions.hide_others()
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://someone:hunter2@{place}/v1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    endpoint = rows()["LLM endpoint"]
    assert endpoint.state == "fail"
    assert place in endpoint.detail
    assert "hunter2" not in endpoint.detail
    assert "someone" not in endpoint.detail
