"""What a scripted endpoint says against a request, and what becomes of each."""

from __future__ import annotations

import email.utils
import time

import pytest

from kopt.model.completion import Usage


@pytest.mark.parametrize("form", ["seconds", "milliseconds", "date"])
def test_429_is_tried_again_when_the_endpoint_says(server, model, request_of, form):
    header, least = {
        "seconds": (("retry-after", "1"), 1.0),
        "milliseconds": (("retry-after-ms", "700"), 0.7),
        "date": (("retry-after", email.utils.formatdate(time.time() + 3, usegmt=True)), 1.5),
    }[form]
    server.does(server.fails(429, "slow down", headers=[header]), server.says())
    found = model().kopt_complete(request_of())
    assert found.text == "fine"
    first, second = server.times
    assert least <= second - first < least + 5.0


def test_429_for_good_is_rate_limited(server, model, failure_of):
    server.does(server.fails(429, "slow down"))
    failure = failure_of(model(retries=2))
    assert failure.kind == "rate-limited"
    assert "slow down" in failure.detail and "tried 3 times" in failure.detail
    assert len(server.requests) == 3
    assert (failure.usage, failure.usd) == (Usage(), 0.0)


def test_an_endpoint_that_asks_to_wait_for_long_is_given_up(server, model, failure_of):
    server.does(server.fails(429, "slow down", headers=[("retry-after", "3600")]))
    began = time.monotonic()
    failure = failure_of(model())
    assert failure.kind == "rate-limited"
    assert "3600 s" in failure.detail and "longest_wait_seconds" in failure.detail
    assert len(server.requests) == 1
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("status", "more"),
    [
        (429, {"message": "You exceeded your current quota", "code": "insufficient_quota"}),
        (402, {"message": "Payment required"}),
        (400, {"message": "Your credit balance is too low to access the API"}),
    ],
)
def test_no_more_quota_is_not_tried_again(server, model, failure_of, status, more):
    server.does(server.fails(status, **more))
    failure = failure_of(model(fallbacks=("other",)))
    assert failure.kind == "quota"
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [500, 502, 503, 408])
def test_a_server_error_is_tried_again(server, model, request_of, failure_of, status):
    server.does(server.fails(status), server.fails(status), server.says())
    assert model().kopt_complete(request_of()).text == "fine"
    server.does(server.fails(status, "broken"))
    failure = failure_of(model(retries=1))
    assert failure.kind == "unavailable"
    assert "broken" in failure.detail and server.url in failure.detail


@pytest.mark.parametrize(
    "step",
    [
        lambda server: server.streams("{no json"),
        lambda server: server.sends(b"{no json"),
        lambda server: server.sends({"choices": []}),
        lambda server: server.sends({"choices": None}),
        lambda server: server.streams(),
        lambda server: server.streams({"choices": []}),
        lambda server: server.sends(b"<html>hello</html>", "text/html"),
        lambda server: server.streams("[]", '"text"', "17"),
        lambda server: server.sends(b'\xff\xfe{"a"'),
    ],
)
def test_what_is_no_answer_is_invalid(server, model, failure_of, step):
    server.does(step(server))
    failure = failure_of(model())
    assert failure.kind == "invalid"
    assert server.url in failure.detail
    assert len(server.requests) == 2


def test_a_wrong_base_url_is_named(server, model, failure_of):
    server.does(server.sends(b"<html></html>", "text/html"))
    assert "base_url" in failure_of(model()).detail
    server.does(lambda handler, body: handler.whole(404, b"404 page not found", kind="text/plain"))
    failure = failure_of(model())
    assert failure.kind == "unavailable"
    assert "base_url" in failure.detail


def test_withheld_answers_are_filtered(server, model, failure_of):
    server.does(server.says("I", finish="content_filter"))
    failure = failure_of(model())
    assert failure.kind == "filtered"
    assert failure.usage == Usage(input_tokens=10, output_tokens=5)
    server.does(server.fails(400, "The response was filtered", code="content_filter"))
    assert failure_of(model()).kind == "filtered"
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("status", "more"),
    [
        (400, {"message": "too long", "code": "context_length_exceeded"}),
        (400, {"message": "This model's maximum context length is 4096 tokens"}),
        (400, {"message": "the request exceeds the available context size"}),
        (400, {"message": "no", "type": "exceed_context_size_error"}),
        (413, {"message": "Request entity too large"}),
    ],
)
def test_a_prompt_that_is_too_long_is_never_tried_again(server, model, failure_of, status, more):
    server.does(server.fails(status, **more))
    failure = failure_of(model(fallbacks=("other",)))
    assert failure.kind == "context-overflow"
    assert len(server.requests) == 1


def test_errors_within_a_stream(server, model, request_of, failure_of):
    busy = {"error": {"message": "overloaded", "type": "server_error"}}
    server.does(server.streams(busy), server.says())
    assert model().kopt_complete(request_of()).text == "fine"
    long = {"error": {"message": "too long", "code": "context_length_exceeded"}}
    server.does(server.streams(long))
    assert failure_of(model()).kind == "context-overflow"
    failed = {
        "type": "response.failed",
        "response": {"error": {"code": "rate_limit_exceeded", "message": "later"}},
    }
    server.does(server.streams(failed))
    failure = failure_of(model(api="responses", retries=1))
    assert failure.kind == "rate-limited"
    assert "later" in failure.detail


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_says_which_variable(server, model, failure_of, monkeypatch, status):
    server.does(server.fails(status, "Incorrect API key provided"))
    failure = failure_of(model(fallbacks=("other",)))
    assert failure.kind == "unavailable"
    assert "OPENAI_API_KEY" in failure.detail and "kopt resume" in failure.detail
    monkeypatch.delenv("OPENAI_API_KEY")
    assert "wants a key" in failure_of(model()).detail
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("temperature", {"temperature": 0.3}), ("seed", {"seed": 7}),
        ("reasoning_effort", {"reasoning_effort": "low"}), ("stream_options", {}),
        ("top_k", {"body": {"top_k": 3}}),
    ],
)  # fmt: skip
def test_a_parameter_that_is_not_taken_is_dropped_and_remembered(
    server, model, request_of, capsys, name, options
):
    server.does(server.refuses(name))
    plugin = model(**options)
    assert plugin.kopt_complete(request_of()).text == "fine"
    assert plugin.kopt_complete(request_of(sample=1)).text == "fine"
    assert [name in asked for asked in server.requests] == [True, False, False]
    assert "parameter_dropped" in capsys.readouterr().err


def test_a_parameter_may_be_named_in_words_alone(server, model, request_of):
    said = [
        {
            "type": "extra_forbidden",
            "loc": ["body", "seed"],
            "msg": "Extra inputs are not permitted",
        }
    ]

    def step(handler, body):
        if "seed" in body:
            handler.whole(422, {"detail": said})
        else:
            server.says()(handler, body)

    server.does(step)
    assert model(seed=1).kopt_complete(request_of()).text == "fine"
    assert len(server.requests) == 2


def test_the_limit_of_an_answer_goes_by_its_other_name_and_never_unsent(
    server, model, request_of, failure_of
):
    server.does(server.refuses("max_tokens"))
    assert model().kopt_complete(request_of(max_tokens=77)).text == "fine"
    assert server.requests[-1]["max_completion_tokens"] == 77
    both = server.refuses("max_tokens", then=server.refuses("max_completion_tokens"))
    server.does(both)
    failure = failure_of(model())
    assert failure.kind == "invalid"
    assert "max_completion_tokens" in failure.detail


def test_a_wrong_request_is_invalid_at_once(server, model, failure_of):
    server.does(server.fails(400, "messages: roles must alternate"))
    failure = failure_of(model(fallbacks=("other",)))
    assert failure.kind == "invalid"
    assert "roles must alternate" in failure.detail
    assert len(server.requests) == 1


def test_a_fallback_takes_over(server, model, request_of, failure_of, capsys):
    def step(handler, body):
        if body["model"] == "m":
            handler.whole(404, {"error": {"message": "no", "code": "model_not_found"}})
        elif body["model"] == "second":
            handler.whole(503, {"error": {"message": "loading"}})
        else:
            server.says("from the third")(handler, body)

    server.does(step)
    plugin = model(fallbacks=("second", "third"), retries=1)
    found = plugin.kopt_complete(request_of())
    assert (found.text, found.model) == ("from the third", "third")
    assert [asked["model"] for asked in server.requests] == ["m", "second", "second", "third"]
    assert "model_replaced" in capsys.readouterr().err
    failure = failure_of(model())
    assert failure.kind == "unavailable"
    assert "no model 'm'" in failure.detail


def test_a_variable_that_is_not_set(model, failure_of):
    failure = failure_of(model(headers={"Authorization": "Bearer ${NOT_SET_ANYWHERE}"}))
    assert failure.kind == "unavailable"
    assert "NOT_SET_ANYWHERE" in failure.detail
