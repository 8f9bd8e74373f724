"""Becomes a sanitized program, which reserves far more addresses than a candidate may have memory.

Run as ``python -I -S launch.py PROGRAM``; it needs the standard library only.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys

_LARGEST_FILE = 64 << 20
"""Bytes that a program may print or log."""
_ADDR_NO_RANDOMIZE = 0x0040000
_CANNOT_START = 4


def _lift_memory_limit() -> None:
    for wanted in (resource.RLIM_INFINITY, resource.getrlimit(resource.RLIMIT_DATA)[1]):
        try:
            resource.setrlimit(resource.RLIMIT_DATA, (wanted, wanted))
        except (OSError, ValueError):
            continue
        break
    limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
    if limit != resource.RLIM_INFINITY:
        sys.stderr.write(
            f"this process may have {limit >> 20} MiB of memory at most, which leaves no room for "
            "the addresses that a sanitizer reserves\n"
        )
        sys.exit(_CANNOT_START)


def main(program: str) -> None:
    """Lift and set limits, lay memory out as older sanitizers want it, and become the program."""
    _lift_memory_limit()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
    if sys.platform == "linux":
        # Refused in some containers, where it is also seldom needed.
        ctypes.CDLL(None).personality(_ADDR_NO_RANDOMIZE)
    os.execv(program, [program])


if __name__ == "__main__":
    main(sys.argv[1])
