"""Prompts from Jinja2 data files: sections that are empty are left out, and so is what is too much.

A template writes nothing but sections: ``{% call section("Device", drop=3) %}...{% endcall %}``.
A section with nothing in it is left out with its heading. Where a prompt is longer than it may be,
the sections with the highest ``drop`` go first; those with ``drop=0`` stay.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

from kopt.errors import PluginError
from kopt.metering import estimated_tokens
from kopt.model.completion import Message
from kopt_rewrite.ideas import one_line

if TYPE_CHECKING:
    import jinja2

_FENCES = re.compile(r"`{3,}")


class Section(NamedTuple):
    """A part of a prompt."""

    title: str
    """Empty where it has no heading."""
    body: str
    drop: int
    """The higher, the earlier it is left out; 0: never."""

    @property
    def text(self) -> str:
        """With its heading."""
        return f"## {self.title}\n\n{self.body}" if self.title else self.body


class Prompt(NamedTuple):
    """What is said to a model."""

    messages: tuple[Message, ...]
    dropped: tuple[str, ...]
    """Titles of the sections that were left out for length."""

    @property
    def text(self) -> str:
        """All of it."""
        return "\n\n".join(message.content for message in self.messages)


def render(name: str, facts: Mapping[str, object], tokens: int) -> Prompt:
    """Return the prompt ``name`` about some facts, of at most ``tokens`` estimated tokens.

    A fact that a template uses and is not given is an error (StrictUndefined). Raises PluginError
    where the prompt does not fit even without all that can be left out.
    """
    system = "\n\n".join(section.text for section in sections_of("system", facts))
    room = tokens - estimated_tokens(len(system) + 2)
    body, dropped = fit(sections_of(name, facts), room, name)
    messages = (Message(role="system", content=system), Message(role="user", content=body))
    return Prompt(messages, dropped)


def sections_of(name: str, facts: Mapping[str, object]) -> list[Section]:
    """Return a template's sections that have something in them, in order."""
    found: list[Section] = []

    def section(title: str, drop: int = 0, *, caller: Callable[[], str]) -> str:
        body = caller().strip("\n").rstrip()
        if body.strip():
            found.append(Section(title, body, drop))
        return ""

    left = _environment().get_template(f"{name}.j2").render(**facts, section=section)
    if left.strip():
        raise PluginError(f"prompt {name}: text outside of its sections: {left.strip()[:80]!r}")
    return found


def fit(sections: list[Section], tokens: int, name: str) -> tuple[str, tuple[str, ...]]:
    """Return the text of the sections that fit, and the titles of those that were left out."""
    kept = list(sections)
    dropped: list[Section] = []
    while True:
        text = _joined(kept, dropped)
        if estimated_tokens(len(text)) <= tokens:
            return text, tuple(section.title for section in dropped)
        least = max(kept, key=lambda section: section.drop, default=None)
        if least is None or not least.drop:
            raise PluginError(
                f"the prompt {name!r} has {estimated_tokens(len(text))} tokens at least, and may "
                f"have {max(tokens, 0)} besides the system's; raise it with "
                "-o strategy.rewrite.prompt_tokens=N"
            )
        last = max(i for i, section in enumerate(kept) if section.drop == least.drop)
        dropped.append(kept.pop(last))


def _joined(kept: list[Section], dropped: list[Section]) -> str:
    parts = [section.text for section in kept]
    if dropped:
        names = ", ".join(section.title or "a part without a title" for section in dropped)
        parts.append(f"(Left out for length: {names}.)")
    return "\n\n".join(parts)


@functools.cache
def data_text(folder: str, name: str) -> str | None:
    """Return a data file of this package; None where there is none."""
    place = resources.files("kopt_rewrite").joinpath(folder, name)
    return place.read_text(encoding="utf-8") if place.is_file() else None


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: data_text("prompts", name)),
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False,
        keep_trailing_newline=True,
    )  # fmt: skip
    made.filters["fenced"] = fenced
    made.filters["number"] = number
    made.filters["line"] = lambda text, most=240: one_line(text, most)
    return made


def fenced(text: str, info: str = "") -> str:
    """Return text in a fence that nothing in it can close."""
    longest = max((len(run) for run in _FENCES.findall(text)), default=2)
    mark = "`" * (longest + 1)
    return f"{mark}{info}\n{text.strip(chr(10))}\n{mark}"


def number(value: float) -> str:
    """Return a figure with four digits that count."""
    return f"{value:.4g}" if abs(value) < 1e6 else f"{value:,.0f}"
