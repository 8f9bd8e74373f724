"""Links between pages lead somewhere, and every page can be reached from the index."""

from __future__ import annotations

import re
from pathlib import Path

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def links(page: Path) -> list[str]:
    """Return the targets of a page's links that are no addresses."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [link for link in LINK.findall(text) if not re.match(r"[a-z]+:", link)]


def anchors(page: Path) -> set[str]:
    """Return the anchors that a page's headings have on a forge."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_relative_links_resolve(page: Path, root: Path) -> None:
    for link in links(page):
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page}: {link}"
        assert path.is_relative_to(root), f"{page}: {link} leaves the repository"
        if anchor:
            assert anchor in anchors(path), f"{page}: {link}"


def test_every_page_of_the_documentation_is_in_the_index(pages: list[Path], root: Path) -> None:
    index = root / "docs" / "index.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    assert {path for path in pages if path.is_relative_to(root / "docs")} - {index} == linked
