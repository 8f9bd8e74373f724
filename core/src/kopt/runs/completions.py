"""What a run's language model was asked and answered: one JSON file a request."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pydantic import Field, ValidationError

from kopt.errors import RunStoreError
from kopt.model.completion import Completion, CompletionRequest
from kopt.model.record import Record
from kopt.runs.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path


class Exchange(Record):
    """A request and its answer."""

    request: CompletionRequest
    completion: Completion
    asked: float = Field(default=0.0, ge=0)
    """When, in seconds since 1970: by it recordings have an order."""


class CompletionStore:
    """A folder of exchanges, by the request's id."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, request: CompletionRequest) -> Completion | None:
        """Return what was answered; None where it was not. Raises RunStoreError where damaged."""
        return self.answer_to(request.id)

    def answer_to(self, request: str) -> Completion | None:
        """Return the same by the request's id."""
        path = self._path(request)
        return read_exchange(path).completion if path.exists() else None

    def keep(self, request: CompletionRequest, completion: Completion, asked: float = 0.0) -> None:
        """Put an answer on the disk. Raises RunStoreError."""
        exchange = Exchange(request=request, completion=completion, asked=asked)
        text = json.dumps(exchange.to_json(), indent=1, ensure_ascii=False)
        path = self._path(request.id)
        try:
            self._folder.mkdir(exist_ok=True)
            write_atomically(path, (text + "\n").encode("utf-8", "backslashreplace"))
        except OSError as error:
            raise RunStoreError(
                f"{path} cannot be written: {error}; free some space, then kopt resume"
            ) from error

    def _path(self, request: str) -> Path:
        return self._folder / f"{request}.json"


def read_exchange(path: Path) -> Exchange:
    """Return what a file holds. Raises RunStoreError."""
    try:
        return Exchange.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        said = error if isinstance(error, OSError) else error.errors()[0]["msg"]
        raise RunStoreError(
            f"{path} is no exchange with a language model: {said}; restore it from a copy, or "
            "remove it to have the model asked again"
        ) from error
