"""A language model for kopt that answers from recordings of earlier runs."""

from __future__ import annotations

from kopt_replay.replay import Replay

__all__ = ["Replay"]
