"""The mailbox keeps the contract of language models, with and without replies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kopt.testing import LlmContract
from kopt_mailbox import Mailbox


class TestPending(LlmContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "mailbox"

    def plugin(self) -> Mailbox:
        return Mailbox(Mailbox.Options(folder=self.folder))


class TestAnswered(LlmContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        for number in range(8):
            path = tmp_path / f"{self.request(number).id}.reply.md"
            path.write_text(f"registers, answer {number}\n")
            os.utime(path, (1e9, 1e9))

    def plugin(self) -> Mailbox:
        return Mailbox(Mailbox.Options(folder=self.folder))

    def test_the_reply_is_the_files_text(self) -> None:
        answer = self.hooks().kopt_complete(self.request(3))
        assert answer is not None
        assert answer.text == "registers, answer 3\n"
        assert answer.usd is None
        assert answer.usage.total > 0
        assert answer.usage.estimated
