"""The staged verifier: parse, build, smoke, poison, accuracy."""

from __future__ import annotations

from kopt_verify.verifier import Verify

__all__ = ["Verify"]
