"""Language models behind any OpenAI-compatible endpoint, hosted or local, for kopt."""

from __future__ import annotations

from kopt_openai.plugin import OpenAI

__all__ = ["OpenAI"]
