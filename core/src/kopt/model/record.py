"""The frozen, typed base of every record that crosses a module, a process or a file."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """An immutable value: unknown fields are refused, NaN is written as null."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON-compatible data."""
        return self.model_dump(mode="json")


class Options(Record):
    """The options of one plugin: subclass it as ``class Options(kopt.Options)`` in the plugin."""


def content_id(*parts: object) -> str:
    """Return the first 16 hex digits of the SHA-256 of ``parts`` in canonical JSON."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
