"""Replay keeps the contract of language models, with and without a recording that fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from kopt.model.completion import Completion, CompletionRequest, Message
from kopt.runs.completions import CompletionStore
from kopt.testing import LlmContract
from kopt_replay import Replay


class TestRecorded(LlmContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        store = CompletionStore(tmp_path)
        for number in range(8):
            store.keep(self.request(number), Completion(text=f"answer {number}", model="m"))

    def plugin(self) -> Replay:
        return Replay(Replay.Options(folder=self.folder))

    def test_each_gets_its_own(self) -> None:
        hooks = self.hooks()
        answers = [hooks.kopt_complete(self.request(number)) for number in range(8)]
        assert [each.text for each in answers if each] == [f"answer {n}" for n in range(8)]


class TestUnmatched(TestRecorded):
    def request(self, number: int) -> CompletionRequest:
        text = f"asked otherwise, {number}"
        return CompletionRequest(messages=(Message(role="user", content=text),))

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        CompletionStore(tmp_path).keep(super().request(0), Completion(text="x", model="m"))

    def test_each_gets_its_own(self) -> None:
        assert len(list(self.folder.glob("*.json"))) == 1
