"""What a journal records: one record per kind of line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from kopt.evaluator import Opening
from kopt.model.budget import Spend
from kopt.model.candidate import Candidate
from kopt.model.completion import Usage
from kopt.model.diagnosis import Diagnosis, Profile
from kopt.model.evaluation import Evaluation
from kopt.model.record import Record
from kopt.model.run import RunStatus


class Opened(Record):
    """The problem was opened on a device: its baselines are measured."""

    kind: Literal["opened"] = "opened"
    opening: Opening


class Proposed(Record):
    """A round begins."""

    kind: Literal["proposed"] = "proposed"
    round_number: int = Field(ge=0)
    parents: tuple[str, ...] = ()
    """Candidate ids."""
    candidates: tuple[Candidate, ...]


class Evaluated(Record):
    """A candidate's outcome."""

    kind: Literal["evaluated"] = "evaluated"
    evaluation: Evaluation


class Diagnosed(Record):
    """Judges looked at a round's parent, or profilers at a candidate of which metrics were predicted."""

    kind: Literal["diagnosed"] = "diagnosed"
    parent: str
    """Candidate id."""
    profiles: tuple[Profile, ...] = ()
    diagnoses: tuple[Diagnosis, ...] = ()
    judged: bool = True
    """False: it was profiled, and not judged: nobody asked for that, or a judge waits for an answer."""


class PluginFailed(Record):
    """A plugin's hook failed; the run went on without its answer."""

    kind: Literal["plugin-failed"] = "plugin-failed"
    plugin: str
    """``role.name`` with distribution and version."""
    hook: str
    message: str
    retired: bool = False
    """Whether it is not asked again in this run."""


class Asked(Record):
    """A request is about to be sent: until its bill comes, it may cost so much."""

    kind: Literal["asked"] = "asked"
    request: str
    """The request's id."""
    role: str = ""
    purpose: str = ""
    model: str = ""
    """By the price's name; empty where no price is known."""
    usage: Usage
    """The most that it may use, by estimate."""
    usd: float | None = Field(default=None, ge=0)
    """The most that it may cost; None: the price is unknown."""


class Spent(Record):
    """A language model was asked."""

    kind: Literal["spent"] = "spent"
    tokens: int = Field(ge=0)
    usd: float | None = Field(default=None, ge=0)
    """None: the price is unknown."""
    model: str = ""
    request: str = ""
    """The request's id; what was said lies in ``completions/``."""
    role: str = ""
    purpose: str = ""
    usage: Usage = Usage()
    seconds: float = 0.0
    outcome: str = ""
    """``answered``, or why there is no answer; ``lost`` where nobody knows, see Asked: kopt's process
    ended first, and what is counted is the most that it may have cost."""
    detail: str = ""


class ReplyRead(Record):
    """A strategy said what an answer turned out to be."""

    kind: Literal["reply-read"] = "reply-read"
    request: str
    outcome: str
    usable: bool


class ModelStopped(Record):
    """The language model is no longer asked in this run."""

    kind: Literal["model-stopped"] = "model-stopped"
    reason: str


class Confirmed(Record):
    """The winner, evaluated again in a fresh process."""

    kind: Literal["confirmed"] = "confirmed"
    evaluation: Evaluation


class Finished(Record):
    """The run ended."""

    kind: Literal["finished"] = "finished"
    status: RunStatus
    reason: str = ""


Event = Annotated[
    Opened
    | Proposed
    | Evaluated
    | Diagnosed
    | PluginFailed
    | Asked
    | Spent
    | ReplyRead
    | ModelStopped
    | Confirmed
    | Finished,
    Field(discriminator="kind"),
]
EVENT: TypeAdapter[Event] = TypeAdapter(Event)


class Entry(Record):
    """One line of the journal."""

    seq: int = Field(ge=0)
    """Position, from 0, without gaps."""
    time: float
    """Seconds since 1970."""
    event: Event
    spend: Spend
    """What the run had used up by then, in all."""


def candidates_of(event: Event) -> list[Candidate]:
    """Return every candidate in an event, in the order of the JSON that places_of finds."""
    match event:
        case Opened():
            pairs = [(b.candidate, b.evaluation.candidate) for b in event.opening.baselines]
            return [candidate for pair in pairs for candidate in pair]
        case Proposed():
            return list(event.candidates)
        case Evaluated() | Confirmed():
            return [event.evaluation.candidate]
        case _:
            return []


def unsettled(events: Iterable[Event]) -> tuple[Asked, ...]:
    """Return the requests whose bill never came, in order: those of a process that was killed.

    A session that ends by itself settles all of them before it says so.
    """
    found: dict[str, Asked] = {}
    for event in events:
        match event:
            case Asked():
                found[event.request] = event
            case Spent():
                found.pop(event.request, None)
            case Finished():
                found.clear()
    return tuple(found.values())
