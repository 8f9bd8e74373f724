"""Keys: refused as options, absent from every text, from each byte of a run and from candidates."""

from __future__ import annotations

import base64
import logging

import pytest
from pydantic import SecretStr, ValidationError

import kopt
from kopt import logs
from kopt.errors import PluginOptionsError
from kopt.hooks import Hooks
from kopt.model.candidate import Candidate
from kopt.model.completion import Completion, CompletionRequest, Message
from kopt_openai import OpenAI
from kopt_openai.endpoint import resolve
from kopt_openai.redaction import MASK, cleaned, cleaned_answer, protect

KEY, GATEWAY, PASSWORD = "sk-test-3f9a7c51d2e84b06", "gw-71c2e0b9aa4d5f38", "pw-90ab12cd34ef56"
ALL = (KEY, GATEWAY, PASSWORD, base64.b64encode(f"user:{PASSWORD}".encode()).decode())


def options(**given):
    return OpenAI.Options.model_validate(given)


@pytest.mark.parametrize(
    "given",
    [
        {"headers": {"Authorization": f"Bearer {KEY}"}}, {"headers": {"X-Api-Key": "abc"}},
        {"headers": {"X-Anything": KEY}}, {"api_key": KEY},
        {"base_url": f"https://user:{PASSWORD}@host/v1"},
        {"proxy": f"http://user:{PASSWORD}@proxy:8080"},
        {"base_url": f"https://host/v1?key={KEY}"},
    ],
)  # fmt: skip
def test_a_secret_is_no_option(given):
    """Options lie readable in a run's folder; what refuses them does not repeat them either."""
    with pytest.raises(PluginOptionsError) as caught:
        Hooks.load([("llm", "openai", given)])
    assert not any(secret in str(caught.value) for secret in ALL)
    with pytest.raises(ValidationError):
        options(**given)


def test_secrets_are_named_and_shown_nowhere(monkeypatch):
    monkeypatch.setenv("GATEWAY_AUTH", GATEWAY)
    monkeypatch.setenv("PROXY_WORD", PASSWORD)
    given = options(
        headers={"authorization": "Bearer ${GATEWAY_AUTH}", "X-Team": "kernels"},
        proxy="http://user:${PROXY_WORD}@proxy:8080", api_key=SecretStr(KEY),
    )  # fmt: skip
    endpoint = resolve(given)
    assert endpoint.headers == {"Authorization": f"Bearer {GATEWAY}", "X-Team": "kernels"}
    assert endpoint.proxy == f"http://user:{PASSWORD}@proxy:8080"
    assert endpoint.key == KEY
    assert set(ALL) <= endpoint.secrets()
    shown = repr(given) + repr(endpoint) + given.model_dump_json() + repr(OpenAI(given))
    assert not any(secret in shown for secret in ALL)


def test_a_url_is_shown_without_its_credentials(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", f"https://user:{PASSWORD}@host.example:8443/v1/")
    endpoint = resolve(options())
    assert endpoint.shown == "https://host.example:8443/v1"
    assert (endpoint.host, endpoint.port) == ("host.example", 8443)
    assert endpoint.authorized and endpoint.encrypted and not endpoint.local
    rows = OpenAI(options(model="m")).kopt_check()
    assert not any(PASSWORD in str(row) for row in rows)


def test_messages_are_cleaned_and_answers_keep_their_words():
    protect({KEY, "none", "abc"})
    assert cleaned(f"bad key {KEY}, none") == f"bad key {MASK}, {MASK}"
    assert cleaned("Incorrect API key provided: sk-proj*****wxyz.") == (
        f"Incorrect API key provided: {MASK}."
    )
    assert cleaned("abc is not a key") == "abc is not a key"
    assert (
        cleaned_answer(f"if (x == none) {{ /* {KEY} */ }}") == f"if (x == none) {{ /* {MASK} */ }}"
    )
    assert (
        cleaned_answer("the basic assumptions of sk-learn") == "the basic assumptions of sk-learn"
    )


def test_errors_do_not_repeat_what_a_server_echoes(server, model, failure_of, caplog):
    """In its words, in its header, and with the clients' own logs at their loudest."""
    caplog.set_level(logging.DEBUG)

    def echo(handler, body):
        said = f"you sent {handler.headers['authorization']}"
        handler.whole(401, {"error": {"message": said}}, [("x-echo", KEY)])

    server.does(echo)
    failure = failure_of(model())
    assert KEY not in str(failure) and MASK in failure.detail
    assert {record.name.split(".")[0] for record in caplog.records} & {"openai", "httpcore2"}
    assert KEY not in caplog.text


def test_a_logger_that_a_client_makes_later_is_masked_and_others_are_left_alone(caplog):
    """httpcore's HTTP/1.1 is imported at the first request, with a logger of its own."""
    protect([KEY])
    caplog.set_level(logging.DEBUG)
    logging.getLogger("httpcore2.made_later").debug("sent %s", KEY)
    logging.getLogger("somebody.else").debug("sent %s", KEY)
    assert [record.getMessage() for record in caplog.records] == [f"sent {MASK}", f"sent {KEY}"]


class Asker:
    """Proposes what the model answers, as it stands."""

    needs_llm = True

    @kopt.hookimpl
    def kopt_propose(self, problem, parent, llm):
        if parent is not None:
            return
        asked = [
            CompletionRequest(messages=(Message(role="user", content="write it"),), sample=number)
            for number in range(3)
        ]
        for request, answer in zip(asked, llm.complete(asked), strict=True):
            usable = isinstance(answer, Completion)
            llm.was(request, "candidate" if usable else answer.kind, usable=usable)
            if usable:
                yield Candidate(
                    language="cpp", source=answer.text, entry="scale",
                    settings={"arguments": ["x", "out", "x.numel"]},
                )  # fmt: skip


KERNEL = """\
// %s
#include <cstdint>
#include <cstdio>
extern char** environ;
extern "C" void scale(const float* x, float* out, int64_t n) {
  if (FILE* seen = std::fopen("%s", "w")) {
    for (char** each = environ; *each; ++each) std::fprintf(seen, "%%s\\n", *each);
    std::fclose(seen);
  }
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * 2.0f;
}
"""


@pytest.fixture
def loud(tmp_path, monkeypatch):
    """Have kopt and the clients write all that they can, into files."""
    monkeypatch.setattr(logs, "_settings", logs._Settings())
    root, handler = logging.getLogger(), logging.FileHandler(tmp_path / "debug.log")
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    with (tmp_path / "events.log").open("w", encoding="utf-8") as stream:
        logs.configure("debug", stream=stream)
        yield
    root.removeHandler(handler)
    root.setLevel(level)
    handler.close()


@pytest.mark.slow
def test_no_byte_of_a_run_holds_a_key(server, tmp_path, monkeypatch, capfd, loud):
    """The server echoes keys in errors and answers; a candidate writes down its environment."""
    pytest.importorskip("kopt_torch")
    pytest.importorskip("kopt_cpp")
    environment = tmp_path / "cache" / "builds" / "environment.txt"  # where it may write
    environment.parent.mkdir(parents=True)

    def echo(handler, body):
        sent = f"{handler.headers['authorization']} {handler.headers['x-gateway-token']}"
        steps = [
            server.says(KERNEL % (sent, environment)), server.fails(500, f"broken: {sent}"),
            server.fails(401, f"refused: {sent}"),
        ]  # fmt: skip
        steps[body["seed"]](handler, body)

    server.does(echo)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("GATEWAY", GATEWAY)
    monkeypatch.setenv("KOPT_CACHE_DIR", str(tmp_path / "cache"))
    problem = tmp_path / "problem"
    problem.mkdir()
    (problem / "reference.py").write_text("def scale(x):\n    return x * 2\n", encoding="utf-8")
    (problem / "problem.toml").write_text(
        '[reference]\nfunction = "scale"\n[inputs.x]\nshape = [64, 1024]\n', encoding="utf-8"
    )
    given = {
        "model": "m", "base_url": server.url, "retries": 1, "backoff_seconds": 0.01, "seed": 0,
        "headers": {"X-Gateway-Token": "${GATEWAY}"},
    }  # fmt: skip
    run = kopt.optimize(
        problem, backend="cpp", device="cpu", strategies=[Asker()], llm="openai", runs_dir=tmp_path / "runs",
        options={"llm.openai": given, "backend.torch": {"compile": False}},
        budget=kopt.Budget(seconds=120),
    )  # fmt: skip
    assert run.spend.tokens > 0
    assert environment.read_text(encoding="utf-8").count("=") > 3, "the candidate did not run"
    assert all(KEY in str(headers) and GATEWAY in str(headers) for headers in server.headers)
    (tmp_path / "said.txt").write_text("".join(capfd.readouterr()), encoding="utf-8")
    assert (tmp_path / "debug.log").stat().st_size > 1000
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(MASK.encode() in path.read_bytes() for path in found), "nothing was echoed"
    holding = [
        str(path) for path in found
        if any(secret.encode() in path.read_bytes() for secret in (KEY, GATEWAY))
    ]  # fmt: skip
    assert holding == []
