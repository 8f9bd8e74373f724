"""Connections that are not made, break, stall or are given up; and what that costs."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
import time

import pytest

from kopt.errors import CompletionError
from kopt.model.completion import Usage

PRICES = {"m": {"input": 2.0, "output": 10.0}}


@pytest.mark.parametrize("chunked", [True, False])
def test_a_dropped_stream_is_tried_again_and_paid_for(
    server, model, request_of, failure_of, chunked
):
    """Also where the connection ends as if all were well."""
    server.does(server.hangs_up("z" * 300, chunked=chunked), server.says(usage=(10, 5)))
    found = model(prices=PRICES).kopt_complete(request_of("x" * 60))
    assert found.text == "fine"
    assert found.usage == Usage(input_tokens=20 + 10, output_tokens=100 + 5, estimated=True)
    assert found.usd == pytest.approx((30 * 2.0 + 105 * 10.0) / 1e6)
    server.does(server.hangs_up("z" * 300, chunked=chunked))
    failure = failure_of(model(retries=1, prices=PRICES), text="x" * 60)
    assert failure.kind == "unavailable"
    assert failure.usage == Usage(input_tokens=40, output_tokens=200, estimated=True)
    assert failure.usd == pytest.approx((40 * 2.0 + 200 * 10.0) / 1e6)
    assert failure_of(model(retries=0)).usd is None  # used, at a price nobody knows


def test_a_stream_that_breaks_after_its_end_is_an_answer(server, model, request_of):
    server.does(server.says("whole", usage=None, done=False))
    assert model(chunk_seconds=0.5).kopt_complete(request_of()).text == "whole"
    ended = {"choices": [{"index": 0, "delta": {"content": "whole"}, "finish_reason": "stop"}]}
    server.does(server.streams(ended, end=False))
    assert model().kopt_complete(request_of()).text == "whole"
    assert len(server.requests) == 2


def test_a_slow_first_token_is_given_up(server, model, request_of, failure_of):
    server.does(server.says(pause=5.0))
    began = time.monotonic()
    failure = failure_of(model(first_token_seconds=0.3))
    assert failure.kind == "timeout"
    assert "no token in 0.3 s" in failure.detail and "first_token_seconds" in failure.detail
    assert len(server.requests) == 2
    assert time.monotonic() - began < 4
    server.does(server.says(pause=0.3))
    assert model(first_token_seconds=5).kopt_complete(request_of()).text == "fine"


def test_an_answer_that_stalls_is_given_up_and_the_server_is_told(server, model, failure_of):
    server.does(server.says("x" * 8000, gap=0.5))
    failure = failure_of(model(chunk_seconds=0.2, retries=0))
    assert failure.kind == "timeout"
    assert "paused" in failure.detail
    assert failure.usage.output_tokens >= 1
    assert server.broken_off.wait(10)


def test_the_total_time_bounds_all_tries(server, model, failure_of):
    server.does(server.says("x" * 8000, gap=0.05))
    began = time.monotonic()
    failure = failure_of(model(total_seconds=0.6))
    assert failure.kind == "timeout"
    assert "total_seconds" in failure.detail
    server.does(server.fails(503, headers=[("retry-after", "30")]))
    assert failure_of(model(total_seconds=1.0)).kind == "unavailable"
    assert time.monotonic() - began < 5


def test_cancelling_ends_what_is_in_flight(server, model, request_of):
    """As when a run has ended: the server stops writing, the thread that asked goes on."""
    server.does(server.says("x" * 80_000, gap=0.02))
    plugin, ended = model(), []

    def ask():
        try:
            plugin.kopt_complete(request_of())
        except CompletionError as error:
            ended.append(error.failure)

    thread = threading.Thread(target=ask)
    thread.start()
    while not server.requests:
        time.sleep(0.01)
    time.sleep(0.3)
    plugin.kopt_run_finished()
    thread.join(10)
    [failure] = ended
    assert failure.kind == "stopped"
    assert failure.usage.output_tokens > 1
    assert server.broken_off.wait(10)
    server.does(server.says("and again"))
    assert plugin.kopt_complete(request_of()).text == "and again"


def test_one_request_is_given_up_and_the_others_go_on(server, model, request_of):
    server.does(server.says("x" * 8_000, gap=0.005))
    plugin, ended, texts = model(), [], []

    def ask(sample):
        try:
            texts.append(plugin.kopt_complete(request_of(sample=sample)).text)
        except CompletionError as error:
            ended.append(error.failure)

    threads = [threading.Thread(target=ask, args=(sample,)) for sample in range(2)]
    for thread in threads:
        thread.start()
    while len(server.requests) < 2:
        time.sleep(0.01)
    time.sleep(0.3)
    plugin.kopt_give_up(request_of(sample=1))
    plugin.kopt_give_up(request_of(sample=7))  # nobody asked it
    for thread in threads:
        thread.join(30)
    [failure] = ended
    assert failure.kind == "stopped"
    assert failure.usage.output_tokens > 1
    assert texts == ["x" * 8_000]
    assert server.broken_off.wait(10)


def test_nobody_listens(model, failure_of):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        began = time.monotonic()
        failure = failure_of(model(base_url=f"http://127.0.0.1:{port}/v1", fallbacks=("other",)))
    assert failure.kind == "unavailable"
    assert f"http://127.0.0.1:{port}/v1" in failure.detail
    assert "start the server" in failure.detail
    assert time.monotonic() - began < 5


def test_what_is_no_certificate_file(model, failure_of, tmp_path):
    (tmp_path / "ca.pem").write_text("nothing", encoding="utf-8")
    failure = failure_of(model(ca_bundle=tmp_path / "ca.pem"))
    assert failure.kind == "unavailable"
    assert "ca_bundle" in failure.detail


@pytest.fixture
def certificate(tmp_path):
    """A certificate for 127.0.0.1 that nobody signed, and its key, in one file."""
    made = tmp_path / "own.pem"
    command = [
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
        "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "-", "-out", "-",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        pytest.skip("no openssl here")
    made.write_text(done.stdout, encoding="utf-8")
    return made


def test_a_ca_bundle_is_trusted_and_nothing_without_it(
    endpoint, server, model, request_of, failure_of, certificate
):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    endpoint.socket = context.wrap_socket(endpoint.socket, server_side=True)
    server.does(server.says("over TLS"))
    url = server.url.replace("http:", "https:")
    failure = failure_of(model(base_url=url))
    assert failure.kind == "unavailable"
    assert "ca_bundle" in failure.detail and url in failure.detail
    assert server.requests == []
    found = model(base_url=url, ca_bundle=str(certificate)).kopt_complete(request_of())
    assert found.text == "over TLS"


PROGRAM = """
import contextlib, sys, threading
from kopt.errors import CompletionError
from kopt.model.completion import CompletionRequest, Message
from kopt_openai import OpenAI

plugin = OpenAI(OpenAI.Options(model="m", base_url=sys.argv[1]))
plugin.kopt_price("code")
list(plugin.kopt_check())
print("heavy" if {"openai", "httpx2"} & set(sys.modules) else "light")

def ask():
    with contextlib.suppress(CompletionError):
        plugin.kopt_complete(CompletionRequest(messages=(Message(role="user", content="x"),)))

threading.Thread(target=ask, daemon=True).start()
sys.stdin.read()
"""


def test_a_program_that_ends_does_not_wait_for_an_answer(server):
    """Nor does it complain; and nothing heavy is imported before something is asked."""
    server.does(server.says("x" * 80_000, gap=0.05))
    program = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM, server.url], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    until = time.monotonic() + 60
    while not server.requests and time.monotonic() < until and program.poll() is None:
        time.sleep(0.02)
    said, complained = program.communicate(timeout=10)
    assert (program.returncode, said, complained) == (0, "light\n", "")
    assert len(server.requests) == 1
    assert server.broken_off.wait(10)
