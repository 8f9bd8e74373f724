"""One row of ``kopt doctor``."""

from __future__ import annotations

from typing import Literal

from kopt.model.record import Record


class Check(Record):
    """Whether something that a plugin needs is there, and how to get it."""

    name: str
    state: Literal["ok", "warn", "fail"]
    detail: str = ""
    fix: str = ""
    """The next step for a person; required reading unless ``ok``."""
