"""The rows of ``kopt doctor``: where the endpoint is, whether it is there, never its key."""

from __future__ import annotations

import socket
import time

import pytest

from kopt_openai import OpenAI

KEY = "sk-test-3f9a7c51d2e84b06"


def rows(**given):
    found = list(OpenAI(OpenAI.Options.model_validate(given)).kopt_check())
    assert not any(KEY in str(row) for row in found)
    return found


def test_a_server_that_is_there(server, monkeypatch):
    [row] = rows(base_url=server.url)
    assert row.state == "ok"
    assert server.url in row.detail and "a key is set" in row.detail
    monkeypatch.delenv("OPENAI_API_KEY")
    [row] = rows(base_url=server.url)
    assert row.state == "ok" and "no key" in row.detail
    assert server.headers == []  # nothing was asked


def test_a_server_that_is_not_there_does_not_stop_a_run():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        [row] = rows(base_url=url)
    assert row.state == "warn"
    assert url in row.detail and "refused" in row.detail and "start the server" in row.fix


def test_an_address_that_does_not_answer_costs_two_seconds(monkeypatch):
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    waiting = [socket.socket() for _ in range(4)]
    for each in waiting:
        each.setblocking(False)
        each.connect_ex(full.getsockname())
    began = time.monotonic()
    [row] = rows(base_url=f"http://127.0.0.1:{full.getsockname()[1]}/v1")
    assert time.monotonic() - began < 4
    assert row.state == "warn"
    for each in (*waiting, full):
        each.close()


def test_openai_itself_without_a_key_or_a_model(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    [row] = rows()
    assert row.state == "warn" and "OPENAI_API_KEY" in row.fix
    [row] = rows(model="gpt-5")
    assert row.state == "fail" and "OPENAI_API_KEY" in row.detail
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    row, *_ = rows()  # a run could ask nothing, and no resumed one can be told a model
    assert (row.name, row.state) == ("model", "fail") and "openai.model=NAME" in row.fix
    row, *_ = rows(models={"code": "gpt-5"})
    assert (row.name, row.state) == ("model", "warn")


def test_the_proxy_is_what_has_to_be_there(server):
    proxy = server.url.removesuffix("/v1")
    [row] = rows(base_url="https://model.invalid/v1", proxy=proxy)
    assert row.state == "ok"


def test_a_key_in_the_clear_is_warned_of(server):
    proxy = server.url.removesuffix("/v1")
    [row] = rows(base_url="http://model.invalid/v1", proxy=proxy)
    assert row.state == "warn" and "not encrypted" in row.detail


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"headers": {"X-Key": "${NOT_SET_ANYWHERE}"}}, "NOT_SET_ANYWHERE"),
        ({"ca_bundle": "/no/such/file.pem"}, "/no/such/file.pem"),
    ],
)
def test_what_a_run_could_not_begin_with_is_a_failure(server, given, said):
    first, _ = rows(base_url=server.url, **given)
    assert first.state == "fail" and said in first.detail
