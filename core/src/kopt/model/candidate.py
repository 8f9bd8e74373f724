"""A kernel to try: its source, its knobs, where it came from, and the identity of all that runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from kopt.model.record import Record, content_id

KnobValue = bool | int | float | str


class Edit(Record):
    """A place of the source and what stands there for each choice of a knob."""

    start: int = Field(ge=0)
    """Of the replaced text, in characters from the beginning of the source."""
    end: int
    texts: tuple[str, ...]
    """One for each of the knob's choices, in their order."""


class Knob(Record):
    """A tunable with the values worth trying: declared by the source, or found in it.

    A declared knob's value is passed to the kernel. One that was found has ``edits``: its value is
    written into the source before that is built.
    """

    default: KnobValue
    choices: tuple[KnobValue, ...]
    edits: tuple[Edit, ...] = ()

    @model_validator(mode="after")
    def _default_is_a_choice(self) -> Knob:
        if self.default not in self.choices:
            raise ValueError(f"default {self.default!r} is not among choices {self.choices!r}")
        if any(len(edit.texts) != len(self.choices) for edit in self.edits):
            raise ValueError("an edit has not one text for each choice")
        return self


class Candidate(Record):
    """One kernel with one setting of its knobs.

    ``id`` hashes all that decides what runs: language, source, entry, settings and knob values.
    ``structure`` leaves out the values: candidates that differ in knobs only share it.
    """

    language: str
    source: str
    entry: str
    settings: dict[str, Any] = Field(default_factory=dict)
    """The rest of the kopt header, as argument binding or compiler flags (JSON values)."""
    knobs: dict[str, Knob] = Field(default_factory=dict)
    values: dict[str, KnobValue] = Field(default_factory=dict)
    parents: tuple[str, ...] = ()
    strategy: str = "user"
    idea: str = ""
    watched: tuple[str, ...] = ()
    """Metrics of profilers that its strategy predicted: once it is right, it is profiled for them, in
    a run that has profilers. It is the same candidate with others."""

    @model_validator(mode="after")
    def _values_are_declared(self) -> Candidate:
        for name in self.knobs:
            if not name.isidentifier() or not name.isascii():
                raise ValueError(f"knob {name!r} is no name that a kernel could use")
        for name, value in self.values.items():
            if name not in self.knobs:
                raise ValueError(f"value for {name!r}, which is no declared knob")
            if value not in self.knobs[name].choices:
                raise ValueError(f"{name}={value!r} is not among {self.knobs[name].choices!r}")
        _refuse_overlaps(self.source, self.knobs)
        return self

    @property
    def chosen(self) -> dict[str, KnobValue]:
        """Every knob's value, the default where none was set."""
        return {name: self.values.get(name, knob.default) for name, knob in self.knobs.items()}

    @property
    def text(self) -> str:
        """The source as it is built and kept: with the values of the knobs that were found in it.

        At their defaults it is the source.
        """
        places = sorted(
            (edit.start, edit.end, edit.texts[knob.choices.index(self.chosen[name])])
            for name, knob in self.knobs.items() for edit in knob.edits
        )  # fmt: skip
        parts, done = [], 0
        for start, end, text in places:
            parts += [self.source[done:start], text]
            done = end
        return "".join([*parts, self.source[done:]])

    def with_knobs(self, knobs: Mapping[str, Knob]) -> Candidate:
        """Return the same candidate with knobs that were found in it; errors as the constructor's."""
        return Candidate(**{**dict(self), "knobs": dict(knobs)})

    @property
    def structure(self) -> str:
        """Content hash without the knob values."""
        return content_id(self.language, self.source, self.entry, self.settings)

    @property
    def id(self) -> str:
        """Content hash of everything that decides what runs."""
        return content_id(self.structure, self.chosen)

    def with_values(self, strategy: str, idea: str = "", /, **values: KnobValue) -> Candidate:
        """Return a child with other knob values; errors as the constructor's."""
        return Candidate(
            language=self.language, source=self.source, entry=self.entry, settings=self.settings,
            knobs=self.knobs, values={**self.chosen, **values}, parents=(self.id,),
            strategy=strategy, idea=idea,
        )  # fmt: skip

    def child(self, source: str, *, strategy: str, idea: str = "") -> Candidate:
        """Return a child with another source, whose kopt header is read again."""
        from kopt.model.kernel_file import parse_kernel

        return parse_kernel(
            source, self.language, entry=self.entry, parents=(self.id,), strategy=strategy,
            idea=idea,
        )  # fmt: skip


def _refuse_overlaps(source: str, knobs: Mapping[str, Knob]) -> None:
    """Raise ValueError where edits lie outside the source, over one another, or at one place."""
    before = (-1, 0)
    places = [(edit.start, edit.end) for knob in knobs.values() for edit in knob.edits]
    for start, end in sorted(places):
        if (start, end) == before or not before[1] <= start <= end <= len(source):
            raise ValueError(f"edit {start}:{end} lies over another or outside the source")
        before = (start, end)
