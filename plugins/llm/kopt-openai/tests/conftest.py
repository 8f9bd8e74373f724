"""A scripted endpoint: a real HTTP server that answers each request as a test tells it to."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kopt.model.completion import CompletionRequest, Message
from kopt_openai import OpenAI

KEY = "sk-test-3f9a7c51d2e84b06"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        self.server.script.seen(self, None)
        names = self.server.script.models
        self.whole(200, {"object": "list", "data": [{"id": n, "object": "model"} for n in names]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        step = self.server.script.seen(self, body)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            step(self, body)

    def whole(self, status, body, headers=(), kind="application/json"):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in [("content-type", kind), ("content-length", str(len(data))), *headers]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def begin(self, chunked=True):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        if chunked:
            self.send_header("transfer-encoding", "chunked")
        else:
            self.send_header("connection", "close")
            self.close_connection = True
        self.chunked = chunked
        self.end_headers()

    def send(self, data):
        """Send one event: a dict, or text as it stands."""
        text = data if isinstance(data, str) else json.dumps(data)
        name = f"event: {data['type']}\n" if isinstance(data, dict) and "type" in data else ""
        self.raw(f"{name}data: {text}\n\n".encode())

    def raw(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data) if self.chunked else data)
        self.wfile.flush()

    def end(self):
        self.send("[DONE]")
        if self.chunked:
            self.raw(b"")


def delta(text, finish=None):
    choice = {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}
    return {"id": "1", "object": "chat.completion.chunk", "choices": [choice]}


class Script:
    """What the server does: one step a request, the last one again and again."""

    def __init__(self):
        self.steps, self.requests, self.times, self.headers = [], [], [], []
        self.models = ["served"]
        self.in_flight = self.most_in_flight = 0
        self.broken_off = threading.Event()
        """Set once a client hung up while an answer was written."""
        self._lock = threading.Lock()

    def does(self, *steps):
        self.steps = list(steps)
        return self

    def seen(self, handler, body):
        with self._lock:
            self.headers.append(dict(handler.headers))
            if body is None:
                return None
            self.requests.append(body)
            self.times.append(time.monotonic())
            return self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]

    def says(self, text="fine", finish="stop", usage=(10, 5), pause=0.0, gap=0.0, done=True):
        """Stream a text in pieces; ``pause`` before the first one, ``gap`` between them."""

        def step(handler, body):
            handler.begin()
            time.sleep(pause)
            pieces = [text[i : i + 8] for i in range(0, len(text), 8)]
            try:
                for piece in pieces:
                    handler.send(delta(piece))
                    time.sleep(gap)
                if finish:
                    handler.send(delta("", finish))
            except (BrokenPipeError, ConnectionResetError):
                self.broken_off.set()
                raise
            if usage and (body.get("stream_options") or {}).get("include_usage"):
                handler.send({"id": "1", "choices": [], "usage": tokens(*usage)})
            if done:
                handler.end()

        return step

    def fails(self, status, message="no", headers=(), **more):
        return lambda handler, body: handler.whole(
            status, {"error": {"message": message, **more}}, headers
        )

    def sends(self, data, kind="application/json"):
        return lambda handler, body: handler.whole(200, data, kind=kind)

    def streams(self, *events, chunked=True, end=True):
        """Send these events; without ``end`` hang up after them."""

        def step(handler, body):
            handler.begin(chunked)
            for event in events:
                handler.send(event)
            if end:
                handler.end()
            else:
                handler.close_connection = True

        return step

    def hangs_up(self, after="half an", chunked=True):
        return self.streams(delta(after), chunked=chunked, end=False)

    def refuses(self, name, code="unsupported_parameter", then=None):
        """Answer 400 as long as a request has a parameter."""
        good = then or self.says()

        def step(handler, body):
            if name in body:
                said = f"Unsupported parameter: '{name}' is not supported with this model."
                handler.whole(400, {"error": {"message": said, "param": name, "code": code}})
            else:
                good(handler, body)

        return step


def tokens(given, made, cached=0, reasoning=0):
    return {
        "prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }  # fmt: skip


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """No test reads the user's own settings."""
    for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def endpoint():
    """The running server itself."""
    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.daemon_threads = True
    found.script = Script()
    found.script.url = f"http://127.0.0.1:{found.server_address[1]}/v1"
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()


@pytest.fixture
def server(endpoint):
    """What the server does; ``url`` is where it is."""
    return endpoint.script


@pytest.fixture
def model(server):
    """Make plugins that ask the server, quick to retry; they are closed at the end."""
    made = []

    def make(**options):
        given = {"model": "m", "base_url": server.url, "backoff_seconds": 0.01, **options}
        made.append(OpenAI(OpenAI.Options.model_validate(given)))
        return made[-1]

    yield make
    for each in made:
        each.cancel()


@pytest.fixture
def request_of():
    """Make requests."""

    def make(text="Which memory is the fastest?", **more):
        return CompletionRequest(messages=(Message(role="user", content=text),), **more)

    return make


@pytest.fixture
def failure_of(request_of):
    """Return why a plugin has no answer."""
    from kopt.errors import CompletionError

    def ask(plugin, **more):
        with pytest.raises(CompletionError) as caught:
            plugin.kopt_complete(request_of(**more))
        return caught.value.failure

    return ask
