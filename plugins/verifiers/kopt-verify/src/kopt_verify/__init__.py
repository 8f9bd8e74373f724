"""The staged verifier: cheap stages for every candidate, all of them for a winner."""

from __future__ import annotations

from kopt_verify.verifier import Verify

__all__ = ["Verify"]
