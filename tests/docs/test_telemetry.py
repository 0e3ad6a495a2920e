"""docs/guides/telemetry.md has the metrics of the code: names, kinds, labels and meanings."""

from __future__ import annotations

import pytest

from streams.metrics.catalogue import DATABASE, PROCESS, ExportedMetric
from tests.docs.documents import DOCS, section

TELEMETRY = DOCS / "guides" / "telemetry.md"


def row(metric: ExportedMetric) -> str:
    labels = ", ".join(metric.labels) or "–"
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"


@pytest.mark.parametrize(
    ("heading", "metrics"), [("What the tables say", DATABASE), ("What a process does", PROCESS)]
)
def test_every_metric_is_documented_as_it_is(
    heading: str, metrics: dict[str, ExportedMetric]
) -> None:
    lines = section(TELEMETRY, heading).splitlines()
    documented = [line for line in lines if line.startswith("| `")]
    assert documented == [row(metric) for metric in metrics.values()]
