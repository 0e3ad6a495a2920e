"""Reads what a scraper gets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

Series = dict[tuple[str, ...], float]


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return the samples of the text format: name → (labels, value) of each series."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            found.setdefault(one.name, []).append((dict(one.labels), one.value))
    return found


def collected(*collectors: Any) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return the samples of collectors or registries, as samples() does."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    families: Iterable[Any] = (family for one in collectors for family in one.collect())
    for family in families:
        for one in family.samples:
            found.setdefault(one.name, []).append((dict(one.labels), one.value))
    return found


def value(found: dict[str, Any], name: str, **labels: str) -> float | None:
    """Return the value of the one series with these labels; None if there is none."""
    values = [value for given, value in found.get(name, []) if labels.items() <= given.items()]
    assert len(values) < 2, f"{len(values)} series of {name} with {labels}"
    return values[0] if values else None
