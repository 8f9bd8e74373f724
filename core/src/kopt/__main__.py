"""``python -m kopt``."""

from __future__ import annotations

from kopt.cli.app import main

main()
