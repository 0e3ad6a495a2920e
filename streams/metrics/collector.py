"""Exposes what the tables say as metrics, for any Prometheus registry."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from copy import copy

from django.db import Error, connections
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streams.database.each import Reply, ask_each
from streams.logs import event
from streams.metrics.catalogue import COUNTER, DATABASE
from streams.metrics.reading import MetricReading, Sample
from streams.sharding import aliases

logger = logging.getLogger("streams.metrics")

# In seconds. Several scrapers in this time get one reading.
CACHE_SECONDS = 5.0
# A scrape waits at most this many seconds for a reading: Prometheus waits 10 by default.
WAIT_SECONDS = 8.0


class EmsCollector(Collector):
    """The metrics of the tables on ``using``, or on all aliases that have topics.

    A reading is made on a connection of its own, in autocommit, whatever transaction the caller has
    open. If it fails, or takes longer than WAIT_SECONDS, ``ems_up`` of that alias is 0 and there is
    nothing else of it: an old value would look like a present one.
    """

    def __init__(self, using: str | None = None) -> None:
        self._aliases = [using] if using else aliases()

    def describe(self) -> Iterable[Metric]:
        """Return nothing: otherwise a registry would read the tables when it gets the collector."""
        return []

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        replies = ask_each(self, self._aliases, _read, kept=CACHE_SECONDS, waited=WAIT_SECONDS)
        for reply in replies:
            for metric in _read_or_down(reply):
                # A copy: the next scraper may get the same reading.
                known = families.setdefault(metric.name, _without_samples(metric))
                known.samples.extend(metric.samples)
        return families.values()


def _without_samples(metric: Metric) -> Metric:
    made = copy(metric)
    made.samples = []
    return made


def _read(using: str) -> list[Metric]:
    connections[using].set_autocommit(True)  # the project may have it off
    return _in_families(using, MetricReading(using).samples())


def _read_or_down(reply: Reply[Metric]) -> Iterable[Metric]:
    try:
        return reply.whole()
    except Error as error:
        logger.warning(
            "The metrics of %s cannot be read: %s",
            *(reply.alias, error),
            extra=event("metrics.unread", database=reply.alias, error=type(error).__name__),
        )
        return _in_families(reply.alias, [("ems_up", (), 0)])


def _in_families(using: str, samples: Iterable[Sample]) -> list[Metric]:
    families: dict[str, Metric] = {}
    for name, labels, value in samples:
        metric = DATABASE[name]
        if name not in families:
            kind = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
            families[name] = kind(name, metric.help, labels=("database", *metric.labels))
        families[name].add_metric((using, *labels), float(value))  # type: ignore[attr-defined]
    return list(families.values())
