"""The plugin: answers each request as it was answered when it was recorded."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import kopt
from kopt.errors import CompletionError, ConfigError, KoptError
from kopt.model.check import Check
from kopt.model.completion import Completion, CompletionFailure, Price
from kopt.runs.completions import read_exchange
from kopt_replay.differences import difference, nearest
from kopt_replay.recordings import Recordings, read_recordings

if TYPE_CHECKING:
    from kopt.model.completion import CompletionRequest
    from kopt.model.run import Run
    from kopt.runs.completions import Exchange

_FIX = (
    "point -o llm.replay.folder= at a run's folder below .kopt/runs, at its completions folder, or "
    "at a copy of that"
)
_RECORD = "Record it again with a model"
_MARK = "replay of "


class Replay:
    """Recorded answers: what a model said then, at no cost. A replay asks nobody."""

    class Options(kopt.Options):
        """Options of the replay."""

        folder: Path
        """The recordings: a run's folder, its ``completions``, or a copy of that."""
        match: Literal["exact", "prompt", "order"] = "prompt"
        """Which recording answers, each including the ones before: ``exact`` the same request,
        ``prompt`` one with the same messages, ``order`` the role's next one."""

    keeps_requests = True

    def __init__(self, options: Options) -> None:
        self.options = options
        self._lock = threading.Lock()
        self._recordings: Recordings | None = None
        self._asked: Counter[str] = Counter()

    @kopt.hookimpl
    def kopt_check(self) -> Iterable[Check]:
        """Say whether there is something to replay."""
        try:
            count = len(self._loaded().exchanges)
        except ConfigError as error:
            return [Check(name="recordings", state="fail", detail=str(error), fix=_FIX)]
        except KoptError as error:
            fix = "restore the file from a copy, or record again"
            return [Check(name="recordings", state="fail", detail=str(error), fix=fix)]
        detail = f"{count} in {self.options.folder}"
        return [Check(name="recordings", state="ok", detail=detail)]

    @kopt.hookimpl
    def kopt_price(self) -> Price:
        """A replay is free, whatever the recorded answers cost."""
        return Price(model="replay", input_usd=0.0, output_usd=0.0, source="nothing is asked")

    @kopt.hookimpl
    def kopt_run_started(self, run: Run) -> None:
        """Go on counting where a resumed run stopped: what it has answers to is not asked again."""
        if self.options.match != "order":
            return
        answered = (run.folder / "completions").glob("*.json")
        roles = Counter(read_exchange(path).request.role for path in answered)
        with self._lock:
            self._asked = roles

    @kopt.hookimpl
    def kopt_complete(self, request: CompletionRequest) -> Completion:
        """Return the recorded answer. Raises CompletionError where none fits."""
        try:
            recordings = self._loaded()
        except KoptError as error:
            raise _error(str(error)) from error
        with self._lock:
            number = self._asked[request.role]
            self._asked[request.role] += 1
        found = self._find(recordings, request, number)
        if found is None:
            raise _error(self._unmatched(recordings, request, number))
        completion = found.completion
        model = f"{_MARK}{completion.model.removeprefix(_MARK)}"
        return completion.model_copy(update={"usd": 0.0, "model": model})

    def _find(
        self, recordings: Recordings, request: CompletionRequest, number: int
    ) -> Exchange | None:
        found = recordings.exact(request)
        if found is None and self.options.match != "exact":
            found = recordings.by_prompt(request)
        if found is None and self.options.match == "order":
            found = recordings.in_order(request.role, number)
        return found

    def _loaded(self) -> Recordings:
        """Return the recordings, read once. Raises KoptError."""
        with self._lock:
            if self._recordings is None:
                self._recordings = read_recordings(self.options.folder)
            return self._recordings

    def _unmatched(self, recordings: Recordings, request: CompletionRequest, number: int) -> str:
        purpose = f", for {request.purpose!r}" if request.purpose else ""
        said = (
            f"no recording in {self.options.folder} answers request {request.id} "
            f"(role {request.role!r}{purpose}) with match={self.options.match}"
        )
        if self.options.match == "order":
            has = recordings.count(request.role)
            said += f": it is number {number + 1} of its role, which has {has} recordings"
        near = nearest(request, [each.request for each in recordings.exchanges])
        wider = "prompt" if near.prompt_id == request.prompt_id else "order"
        more = f", or match more with -o llm.replay.match={wider}"
        return (
            f"{said}; nearest is {near.id} (role {near.role!r}): {difference(request, near)}. "
            f"{_RECORD}{more if self.options.match != 'order' else ''}"
        )


def _error(detail: str) -> CompletionError:
    return CompletionError(CompletionFailure(kind="invalid", detail=detail, model="replay"))
