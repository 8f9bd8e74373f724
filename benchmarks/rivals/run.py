"""Runs the selftest's CPU kernels through four rivals' protocols and through kopt, and records it.

python benchmarks/rivals/run.py -o benchmarks/results/cpu-rivals.json [--only NAME ...] [--jobs 2]
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # `rivals` is the package, not its parts
    from rivals.recording import main

    main()
