"""Exposes what the tables say as metrics, for any Prometheus registry."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable

from django.db import Error
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streams.conf import database
from streams.database.elsewhere import elsewhere
from streams.logs import event
from streams.metrics.catalogue import COUNTER, DATABASE
from streams.metrics.reading import Reading, Sample

logger = logging.getLogger("streams.metrics")

# In seconds. Several scrapers in this time get one reading.
CACHE_SECONDS = 5.0


class EmsCollector(Collector):
    """Gives the metrics of the tables behind one alias; several scrapers share one reading.

    The reading is made on a connection of its own, in autocommit, whatever transaction the caller
    has open. If it fails, ``ems_up`` is 0 and there is nothing else: an old value would look like a
    present one.
    """

    def __init__(self, using: str | None = None) -> None:
        self.using = database(using)
        self._lock = threading.Lock()
        self._families: list[Metric] = []
        self._fresh_until = 0.0

    def describe(self) -> Iterable[Metric]:
        """Return nothing: otherwise a registry would read the tables when it gets the collector."""
        return []

    def collect(self) -> Iterable[Metric]:
        with self._lock:
            if time.monotonic() >= self._fresh_until:
                self._families = self._read()
                self._fresh_until = time.monotonic() + CACHE_SECONDS
            return self._families

    def _read(self) -> list[Metric]:
        try:
            return self._in_families(elsewhere(self.using, self._samples))
        except Error as error:
            logger.warning(
                "The metrics of %s cannot be read: %s",
                *(self.using, error),
                extra=event("metrics.unread", database=self.using, error=type(error).__name__),
            )
            return self._in_families([("ems_up", (), 0)])

    def _samples(self) -> list[Sample]:
        return list(Reading(self.using).samples())

    def _in_families(self, samples: Iterable[Sample]) -> list[Metric]:
        families: dict[str, Metric] = {}
        for name, labels, value in samples:
            metric = DATABASE[name]
            if name not in families:
                kind = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
                families[name] = kind(name, metric.help, labels=("database", *metric.labels))
            families[name].add_metric((self.using, *labels), float(value))  # type: ignore[attr-defined]
        return list(families.values())
