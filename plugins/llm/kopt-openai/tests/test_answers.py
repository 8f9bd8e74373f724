"""Answers of a scripted endpoint: text, how they end, what they cost, what is asked for them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kopt.model.completion import Usage
from kopt.testing import LlmContract
from kopt_openai import OpenAI, parameters

PRICES = {"m": {"input": 2.0, "output": 10.0, "cached": 0.5}}


class TestOpenAI(LlmContract):
    @pytest.fixture(autouse=True)
    def _server(self, server):
        self.server = server.does(server.says("registers"))

    def plugin(self) -> OpenAI:
        return OpenAI(OpenAI.Options(model="m", base_url=self.server.url))


class TestWithoutAnEndpoint(LlmContract):
    """The same contract where nobody answers."""

    def plugin(self) -> OpenAI:
        return OpenAI(OpenAI.Options(model="m", base_url="http://127.0.0.1:9/v1", retries=0))


def test_an_answer_is_streamed_and_counted(server, model, request_of):
    server.does(server.says("x = 1\n" * 20, usage=(100, 40, 60, 7)))
    found = model(prices=PRICES).kopt_complete(request_of(max_tokens=99))
    assert found.text == "x = 1\n" * 20
    assert (found.model, found.finish) == ("m", "stop")
    assert found.usage == Usage(
        input_tokens=100, output_tokens=40, cached_tokens=60, reasoning_tokens=7
    )
    assert found.usd == pytest.approx((40 * 2.0 + 60 * 0.5 + 40 * 10.0) / 1e6)
    [asked] = server.requests
    assert asked == {
        "model": "m", "messages": [{"role": "user", "content": "Which memory is the fastest?"}],
        "max_tokens": 99, "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip


def test_an_answer_that_was_cut_off_says_so(server, model, request_of):
    server.does(server.says("void f(", finish="length"))
    found = model().kopt_complete(request_of())
    assert (found.text, found.finish) == ("void f(", "length")
    assert found.usd is None  # a server of one's own is not free unless somebody says so


def test_a_model_that_only_reasons_has_an_empty_answer(server, model, request_of):
    thought = {"choices": [{"index": 0, "delta": {"reasoning_content": "hm " * 30}}]}
    ended = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
    server.does(server.streams(thought, ended))
    found = model(free=True).kopt_complete(request_of())
    assert (found.text, found.finish, found.usd) == ("", "length", 0.0)
    assert found.usage.estimated
    assert found.usage.output_tokens == 30


def test_usage_is_estimated_where_none_is_reported(server, model, request_of, capsys):
    server.does(server.says("y" * 300, usage=None))
    found = model(prices=PRICES).kopt_complete(request_of("x" * 600))
    assert found.usage == Usage(input_tokens=200, output_tokens=100, estimated=True)
    assert found.usd == pytest.approx((200 * 2.0 + 100 * 10.0) / 1e6)
    assert "usage_estimated" in capsys.readouterr().err


def test_an_endpoint_that_does_not_stream_is_understood(server, model, request_of):
    message = {"role": "assistant", "content": "in one piece"}
    whole = {
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    }  # fmt: skip
    server.does(server.sends(whole))
    found = model().kopt_complete(request_of())
    assert (found.text, found.finish) == ("in one piece", "stop")
    assert found.usage == Usage(input_tokens=3, output_tokens=4)


def test_the_responses_api(server, model, request_of):
    usage = {
        "input_tokens": 30, "output_tokens": 20, "total_tokens": 50,
        "input_tokens_details": {"cached_tokens": 10, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 5},
    }  # fmt: skip
    server.does(
        server.streams(
            {"type": "response.created", "response": {"id": "r"}},
            {"type": "response.output_text.delta", "delta": "one "},
            {"type": "response.output_text.delta", "delta": "two"},
            {"type": "response.completed", "response": {"id": "r", "usage": usage}},
        )
    )
    plugin = model(api="responses", reasoning_effort="low", seed=3)
    found = plugin.kopt_complete(request_of(max_tokens=50, temperature=0.5))
    assert (found.text, found.finish) == ("one two", "stop")
    assert found.usage == Usage(
        input_tokens=30, output_tokens=20, cached_tokens=10, reasoning_tokens=5
    )
    assert server.requests == [
        {
            "model": "m", "stream": True, "store": False, "temperature": 0.5,
            "input": [{"role": "user", "content": "Which memory is the fastest?"}],
            "max_output_tokens": 50, "reasoning": {"effort": "low"},
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "kind"), [("max_output_tokens", "length"), ("content_filter", "filtered")]
)
def test_an_incomplete_response(server, model, request_of, failure_of, reason, kind):
    details = {"incomplete_details": {"reason": reason}}
    server.does(
        server.streams(
            {"type": "response.output_text.delta", "delta": "half"},
            {"type": "response.incomplete", "response": details},
        )
    )
    if kind == "filtered":
        failure = failure_of(model(api="responses"))
        assert failure.kind == "filtered"
        assert failure.usage.total > 0
    else:
        assert model(api="responses").kopt_complete(request_of()).finish == "length"


def test_models_by_role_and_what_is_sent_with_them(server, model, request_of):
    server.does(server.says())
    plugin = model(
        models={"analysis": "small"}, temperature=0.7, seed=40, reasoning_effort="high",
        body={"top_k": 20},
    )  # fmt: skip
    plugin.kopt_complete(request_of(role="code", sample=2))
    plugin.kopt_complete(request_of(role="analysis", temperature=0.0))
    first, second = server.requests
    assert (first["model"], first["seed"], first["temperature"]) == ("m", 42, 0.7)
    assert (second["model"], second["seed"], second["temperature"]) == ("small", 40, 0.0)
    assert first["reasoning_effort"] == "high"
    assert first["top_k"] == 20


def test_openai_itself_is_sent_the_newer_name_of_the_limit(request_of):
    options, none = OpenAI.Options(), frozenset()
    hosted = parameters.chat("m", request_of(max_tokens=5), options, none, hosted=True)
    assert hosted["max_completion_tokens"] == 5 and "max_tokens" not in hosted
    refused = frozenset({"max_completion_tokens"})
    again = parameters.chat("m", request_of(max_tokens=5), options, refused, hosted=True)
    assert again["max_tokens"] == 5 and "max_completion_tokens" not in again
    assert "max_completion_tokens" in parameters.droppable(hosted, none)
    assert "max_tokens" not in parameters.droppable(again, refused)


def test_the_one_model_that_a_server_has_need_not_be_named(server, model, request_of, failure_of):
    server.does(server.says())
    assert model(model="").kopt_complete(request_of()).model == "served"
    server.models = ["alpha", "beta"]
    failure = failure_of(model(model=""))
    assert failure.kind == "unavailable"
    assert "alpha, beta" in failure.detail
    assert "-o llm.openai.model=" in failure.detail


def test_headers_and_keys_are_sent(server, model, request_of, monkeypatch):
    server.does(server.says())
    monkeypatch.setenv("GATEWAY", "g-5512")
    plugin = model(headers={"X-Team": "kernels", "X-Api-Token": "tok ${GATEWAY}"})
    plugin.kopt_complete(request_of())
    monkeypatch.setenv("OTHER_KEY", "abc-123")
    model(key_variable="OTHER_KEY").kopt_complete(request_of())
    monkeypatch.delenv("OPENAI_API_KEY")
    model().kopt_complete(request_of())
    first, second, third = ({k.lower(): v for k, v in h.items()} for h in server.headers)
    assert (first["x-team"], first["x-api-token"]) == ("kernels", "tok g-5512")
    assert first["authorization"].startswith("Bearer sk-test-")
    assert second["authorization"] == "Bearer abc-123"
    assert "authorization" not in third


def test_the_base_url_of_the_environment(server, request_of, monkeypatch):
    server.does(server.says("from there"))
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    plugin = OpenAI(OpenAI.Options(model="m"))
    assert plugin.kopt_complete(request_of()).text == "from there"
    plugin.cancel()


@pytest.mark.parametrize("by", ["option", "environment"])
def test_a_proxy_is_used(server, model, request_of, monkeypatch, by):
    """The proxy is the scripted server: it sees the whole URL of a host that does not exist."""
    server.does(server.says("by proxy"))
    proxy = server.url.removesuffix("/v1")
    elsewhere = {"base_url": "http://model.invalid/v1"}
    if by == "option":
        elsewhere["proxy"] = proxy
    else:
        monkeypatch.setenv("HTTP_PROXY", proxy)
    assert model(**elsewhere).kopt_complete(request_of()).text == "by proxy"
    assert server.headers[0]["Host"] == "model.invalid"


def test_threads_share_connections_and_do_not_wait_for_each_other(server, model, request_of):
    together = threading.Barrier(8)

    def step(handler, body):
        together.wait(timeout=20)
        server.says("together")(handler, body)

    server.does(step)
    plugin = model()
    with ThreadPoolExecutor(8) as threads:
        requests = [request_of(sample=number) for number in range(8)]
        found = list(threads.map(plugin.kopt_complete, requests))
    assert [each.text for each in found] == ["together"] * 8
