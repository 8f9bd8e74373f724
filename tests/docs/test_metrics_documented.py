"""docs/reference/records.md lists every metric with its unit and meaning."""

from __future__ import annotations

from pathlib import Path

import pytest

from kopt.model.metrics import CALL_METRICS, KERNEL_METRICS, MetricInfo, unit_of

EVERY = [*CALL_METRICS.items(), *KERNEL_METRICS.items()]


@pytest.mark.parametrize(("name", "info"), EVERY, ids=[name for name, _ in EVERY])
def test_a_metric_has_its_row(root: Path, name: str, info: MetricInfo) -> None:
    text = (root / "docs" / "reference" / "records.md").read_text(encoding="utf-8")
    assert f"| `{name}` | {info.unit} | {info.meaning} |" in text
    assert unit_of(name) == info.unit


def test_a_name_means_one_thing() -> None:
    assert not set(CALL_METRICS) & set(KERNEL_METRICS)
    with pytest.raises(KeyError):
        unit_of("bandwidth")
