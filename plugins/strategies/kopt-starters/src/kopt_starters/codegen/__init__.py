"""Generates Triton code for the element-wise part of a graph.

``epilogue`` is for families of heavy operators: what follows their operator, as lines to put in
front of their kernel's store. ``Writer`` is what it is built on: values of a graph as lines, at
coordinates that are kept as axes (``axes``), from loads that its user places.
"""

from __future__ import annotations

from kopt_starters.codegen.axes import NotCoveredError
from kopt_starters.codegen.device_functions import helpers_for
from kopt_starters.codegen.epilogue import Epilogue, epilogue
from kopt_starters.codegen.writer import Load, Writer

__all__ = ["Epilogue", "Load", "NotCoveredError", "Writer", "epilogue", "helpers_for"]
