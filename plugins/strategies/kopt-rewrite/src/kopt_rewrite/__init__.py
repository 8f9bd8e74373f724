"""The rewrite strategy of kopt, and its judge: a language model proposes, everything else decides."""

from __future__ import annotations

from kopt_rewrite.judge import ModelJudge
from kopt_rewrite.strategy import Rewrite

__all__ = ["ModelJudge", "Rewrite"]
