"""The options of the rewrite strategy, each with its bounds."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

import kopt


class RewriteOptions(kopt.Options):
    """How much a language model is asked, and how long prompts and answers may be."""

    attempts: int = Field(default=3, ge=0, le=16)
    """First kernels that are asked for in parallel where nothing is correct yet; 0: none, they are
    left to other strategies."""
    repairs: int = Field(default=2, ge=0, le=8)
    """Repairs of one attempt or idea, one after the other."""
    width: int = Field(default=2, ge=1, le=16)
    """Ideas that are written in a round, for each parent."""
    ideas: int = Field(default=4, ge=1, le=16)
    """Ideas that are asked for at a time."""
    ahead: int = Field(default=0, ge=0, le=16)
    """Next ideas whose code is asked for while this round's is measured; paid for, used or not."""
    profile_ideas: bool = True
    """Whether a kernel is profiled where its idea predicted what only a profiler sees."""
    reflect: bool = True
    """Whether lessons are drawn from outcomes, one request a round at most."""
    lessons: int = Field(default=4, ge=1, le=32)
    """Rounds whose lessons are remembered."""
    prompt_tokens: int = Field(default=24_000, ge=1_000, le=1_000_000)
    """Of a prompt, estimated; what is least useful is left out beyond it."""
    code_tokens: int = Field(default=16_384, ge=256, le=200_000)
    """Of an answer with code."""
    analysis_tokens: int = Field(default=4_096, ge=256, le=200_000)
    """Of an answer with ideas or lessons."""
    temperature: float | None = Field(default=None, ge=0, le=2)
    """For first kernels; None: the model's own."""
    knowledge_texts: int = Field(default=3, ge=0, le=16)
    """Texts of the knowledge folders that a prompt gets."""
    knowledge: tuple[Path, ...] = ()
    """More folders with knowledge, searched first."""
