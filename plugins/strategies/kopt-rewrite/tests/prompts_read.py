"""What holds for every prompt, whoever wrote its facts."""

from __future__ import annotations

import re

FENCE = re.compile(r"^(`{3,})")


def outline(text: str) -> list[tuple[str, str]]:
    """Return a prompt's sections, heading and content, with headings inside fences left alone."""
    sections: list[tuple[str, list[str]]] = [("", [])]
    mark = ""
    for line in text.split("\n"):
        fence = FENCE.match(line)
        if fence and not mark:
            mark = fence[1]
        elif mark and line == mark:
            mark = ""
        elif not mark and line.startswith("## "):
            sections.append((line[3:], []))
            continue
        sections[-1][1].append(line)
    assert not mark, f"a fence is not closed: {text[-200:]}"
    return [(title, "\n".join(lines).strip()) for title, lines in sections]


def check(text: str) -> None:
    """Fail where a prompt has something that tells a model nothing."""
    assert not re.search(r"\bN/A\b|\bn/a\b", text)
    assert "{{" not in text and "{%" not in text
    sections = outline(text)
    titles = [title for title, _ in sections if title]
    assert len(set(titles)) == len(titles), titles
    for title, content in sections[0 if sections[0][1] else 1 :]:
        assert content, f"section {title!r} is empty"
        assert not re.search(r"^(`{3,})\w*\n+\1$", content, re.MULTILINE), (
            f"an empty fence: {title}"
        )
        plain = re.sub(r"^(`{3,}).*?^\1$", "", content, flags=re.MULTILINE | re.DOTALL)
        assert not re.search(r"\bNone\b|\bnan\b|\binf\b|^- *$|: *\.$", plain, re.MULTILINE), title
