"""One build cache for all tests of a session: torch.compile takes 10 s of a CPU for each baseline."""

from __future__ import annotations

import re
from pathlib import Path


def shared_cache(temporary: Path) -> Path:
    """Return the folder, known by a temporary one of the same pytest session's.

    Not for tests of what is built or kept, nor for those of what a candidate may do to a cache.
    """
    session = next(p for p in temporary.parents if re.fullmatch(r"pytest-\d+", p.name))
    folder = session / "kopt-cache"
    folder.mkdir(exist_ok=True)
    return folder
