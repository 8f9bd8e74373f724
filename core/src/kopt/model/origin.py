"""Whose compute one call of a candidate used: the framework's, a vendor library's or its own."""

from __future__ import annotations

from pydantic import Field

from kopt.model.record import Record


class OperatorUse(Record):
    """All uses of one operator of the framework in one call."""

    name: str
    elements: int = Field(ge=0)
    """Of its tensor inputs and outputs, summed over its uses; inputs only where outputs are unknown."""
    moves_only: bool
    """It allocates, views, fills or copies, and computes nothing."""


class KernelUse(Record):
    """All launches of one device kernel in one call."""

    name: str
    device_ms: float = Field(ge=0)


class Origin(Record):
    """What a candidate's process saw in one call: a claim, as everything that it says."""

    operators: tuple[OperatorUse, ...] = ()
    kernels: tuple[KernelUse, ...] = ()
    symbols: tuple[str, ...] = ()
    """Functions of foreign compute libraries, and ways around the linker, that a library asks for."""
