"""The plugin: writes each request to a folder, and answers with the reply file beside it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, Field

import kopt
from kopt.config import parse_duration
from kopt.errors import CompletionError
from kopt.metering import estimated_tokens
from kopt.model.check import Check
from kopt.model.completion import Completion, CompletionFailure, FailureKind, Usage
from kopt.runs.files import write_atomically
from kopt_mailbox.letter import written
from kopt_mailbox.reply import NoReply, read_reply

if TYPE_CHECKING:
    from kopt.model.completion import CompletionRequest

_MODEL = "mailbox"
_POLL_SECONDS = 0.5


def _duration(value: object) -> float:
    """Return seconds; zero is one too. Raises ValueError."""
    return 0.0 if value in (0, "0", "0s") else parse_duration(value)


class Mailbox:
    """A person, a coding agent, or any program that can read and write files, as the model.

    Nobody knows what that costs: a run with ``--max-usd`` is refused. Tokens are estimated from
    the texts' lengths, rather too many than too few.
    """

    class Options(kopt.Options):
        """Options of the mailbox."""

        folder: Path = Path(".kopt/mailbox")
        """Where requests and replies lie; relative to where kopt is started."""
        wait: Annotated[float, BeforeValidator(_duration)] = Field(default=0.0, ge=0)
        """How long to wait for each reply before the run pauses, as ``10m``; in seconds."""

    keeps_requests = True

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or self.Options()

    @kopt.hookimpl
    def kopt_check(self) -> Iterable[Check]:
        """Say whether requests can be written, without writing any."""
        folder = self.options.folder.absolute()
        there = next(place for place in (folder, *folder.parents) if place.exists())
        if not there.is_dir():
            return [self._failed(f"{there} is no folder")]
        if not os.access(there, os.W_OK | os.X_OK):
            return [self._failed(f"{there} cannot be written")]
        return [Check(name="mailbox", state="ok", detail=str(folder))]

    @kopt.hookimpl
    def kopt_complete(self, request: CompletionRequest) -> Completion:
        """Return the reply. Raises CompletionError, ``pending`` while there is none."""
        folder = self.options.folder.absolute()
        letter = folder / f"{request.id}.request.md"
        reply = folder / f"{request.id}.reply.md"
        _put(letter, written(request, reply))
        until = time.monotonic() + self.options.wait
        while isinstance(found := read_reply(reply), NoReply):
            left = until - time.monotonic()
            if left <= 0:
                why = f"; {found.why}" if found.why else ""
                raise _error("pending", f"{reply} (asked in {letter}{why})")
            time.sleep(min(left, _POLL_SECONDS))
        usage = Usage(
            input_tokens=estimated_tokens(request.characters),
            output_tokens=estimated_tokens(len(found)),
            estimated=True,
        )
        return Completion(text=found, model=_MODEL, usage=usage, finish="stop")

    def _failed(self, detail: str) -> Check:
        fix = "name another folder with -o llm.mailbox.folder=FOLDER"
        return Check(name="mailbox", state="fail", detail=detail, fix=fix)


def _put(path: Path, text: str) -> None:
    """Write a request where it is not there already. Raises CompletionError."""
    content = text.encode("utf-8", "backslashreplace")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != content:
            write_atomically(path, content)
    except OSError as error:
        raise _error("unavailable", f"the request cannot be written: {error}") from error


def _error(kind: FailureKind, detail: str) -> CompletionError:
    return CompletionError(CompletionFailure(kind=kind, detail=detail, model=_MODEL))
