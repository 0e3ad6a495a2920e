"""Counts durations of handler calls: a histogram that takes half the time of a general one.

Only consumers have it. They are one process each, so it needs no part in the folder that the
processes of a web server share.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from threading import Lock

from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from streams.metrics.catalogue import ExportedMetric


class Series:
    """The counted values of one set of labels."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._lock = Lock()

    def observe(self, value: float) -> None:
        """Count ``value``, in seconds, in the first bucket whose bound is not below it."""
        at = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[at] += 1
            self._sum += value

    def read(self) -> tuple[list[tuple[str, float]], float]:
        """Return the buckets, each with all below it, and the sum of all values."""
        with self._lock:
            counts, total = list(self._counts), self._sum
        buckets, below = [], 0
        for bound, count in zip((*self._bounds, float("inf")), counts, strict=True):
            below += count
            buckets.append((floatToGoString(bound), float(below)))  # type: ignore[no-untyped-call]
        return buckets, total


class QuickHistogram(Collector):
    """A histogram with a Series for each set of labels."""

    def __init__(self, metric: ExportedMetric) -> None:
        self._metric = metric
        self._series: dict[tuple[str, ...], Series] = {}
        self._lock = Lock()

    def labels(self, *labels: str) -> Series:
        with self._lock:
            return self._series.setdefault(labels, Series(self._metric.buckets))

    def describe(self) -> Iterable[Family]:
        return []

    def collect(self) -> Iterable[Family]:
        metric = self._metric
        family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        with self._lock:
            series = dict(self._series)
        for labels, one in series.items():
            buckets, total = one.read()
            family.add_metric(labels, buckets, total)
        return [family]
