"""The rules as the README's table: ``python -m kopt_roofline.table`` prints it."""

from __future__ import annotations

from kopt_roofline.rules import Rule, Rulebook, rulebook

HEAD = "| bottleneck | asked of | holds where | unless | suggests | source |"


def table(book: Rulebook) -> str:
    """Return a Markdown table with one row for each rule, in their order."""
    rows = [_row(rule) for rule in book.rules]
    return "\n".join([HEAD, "| --- | --- | --- | --- | --- | --- |", *rows])


def _row(rule: Rule) -> str:
    of = rule.applies_to if rule.device == "any" else f"{rule.applies_to} ({rule.device})"
    cells = (
        f"`{rule.name}`" + (" (fallback)" if rule.fallback else ""),
        of,
        ", ".join(f"`{each}`" for each in rule.when),
        ", ".join(f"`{each}`" for each in rule.unless),
        ", ".join(rule.moves),
        rule.source,
    )
    return f"| {' | '.join(cell or '-' for cell in cells)} |"


if __name__ == "__main__":
    print(table(rulebook()))  # noqa: T201 - this is a command
