"""Recorded exchanges: read from a folder, put in order, and found again by three rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kopt.errors import ConfigError
from kopt.runs.completions import Exchange, read_exchange

if TYPE_CHECKING:
    from pathlib import Path

    from kopt.model.completion import CompletionRequest

_IN_A_RUN = "completions"


class Recordings:
    """Exchanges in the order in which they were asked."""

    def __init__(self, exchanges: Sequence[Exchange]) -> None:
        self.exchanges = sorted(exchanges, key=lambda each: (each.asked, each.request.id))
        self._exact: dict[str, Exchange] = {}
        self._prompts: dict[str, list[Exchange]] = defaultdict(list)
        self._roles: dict[str, list[Exchange]] = defaultdict(list)
        for each in self.exchanges:
            self._exact.setdefault(each.request.id, each)
            self._prompts[each.request.prompt_id].append(each)
            self._roles[each.request.role].append(each)

    def exact(self, request: CompletionRequest) -> Exchange | None:
        """Return what was asked in just this way."""
        return self._exact.get(request.id)

    def by_prompt(self, request: CompletionRequest) -> Exchange | None:
        """Return what was asked in these messages, of the same role and sample if there is such.

        A sample that was not recorded gets one that was, the samples taking turns.
        """
        found = self._prompts.get(request.prompt_id)
        if not found:
            return None
        same_role = [each for each in found if each.request.role == request.role] or found
        for each in same_role:
            if each.request.sample == request.sample:
                return each
        return same_role[request.sample % len(same_role)]

    def in_order(self, role: str, number: int) -> Exchange | None:
        """Return a role's recording of that number, from 0."""
        found = self._roles.get(role, [])
        return found[number] if number < len(found) else None

    def count(self, role: str) -> int:
        """Return how many recordings a role has."""
        return len(self._roles.get(role, []))


def read_recordings(folder: Path) -> Recordings:
    """Return what a folder holds; a run's own folder stands for its ``completions``.

    Raises ConfigError where there is nothing to replay, RunStoreError where a file is damaged.
    """
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "is not there"
        raise ConfigError(f"{folder} {what}")
    inner = folder / _IN_A_RUN
    place = inner if inner.is_dir() else folder
    paths = sorted(place.glob("*.json"))
    if (folder / "run.json").exists() and place is folder:
        raise ConfigError(f"the run in {folder} asked no language model anything")
    if not paths:
        raise ConfigError(f"{folder} holds no exchanges (*.json)")
    return Recordings([read_exchange(path) for path in paths])
