"""Exposes what the tables say as metrics, for any Prometheus registry."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from copy import copy

from django.db import Error, connections
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streams.logs import event
from streams.metrics.catalogue import COUNTER, DATABASE
from streams.metrics.reading import Reading, Sample
from streams.sharding import aliases

logger = logging.getLogger("streams.metrics")

# In seconds. Several scrapers in this time get one reading.
CACHE_SECONDS = 5.0
# A scrape waits at most this many seconds for a reading: Prometheus waits 10 by default.
WAIT_SECONDS = 8.0
# A reading that has hung for so long is left alone, and the next scrape begins another one: its
# connection may be dead, which the client notices after hours.
HUNG_SECONDS = 60.0


class EmsCollector(Collector):
    """Gives the metrics of the tables on ``using``, or on all aliases that have topics.

    A reading is made on a connection of its own, in autocommit, whatever transaction the caller has
    open. If it fails, or takes longer than WAIT_SECONDS, ``ems_up`` of that alias is 0 and there is
    nothing else of it: an old value would look like a present one.
    """

    def __init__(self, using: str | None = None) -> None:
        self._aliases = [_OfAlias(alias) for alias in ([using] if using else aliases())]

    def describe(self) -> Iterable[Metric]:
        """Return nothing: otherwise a registry would read the tables when it gets the collector."""
        return []

    def collect(self) -> Iterable[Metric]:
        for one in self._aliases:
            one.begin()  # all are read at the same time
        families: dict[str, Metric] = {}
        for one in self._aliases:
            for metric in one.collect():
                # A copy: the next scraper may get the same reading.
                known = families.setdefault(metric.name, _without_samples(metric))
                known.samples.extend(metric.samples)
        return families.values()


def _without_samples(metric: Metric) -> Metric:
    made = copy(metric)
    made.samples = []
    return made


class _OfAlias:
    """Gives the metrics of the tables behind one alias; several scrapers share one reading."""

    def __init__(self, using: str) -> None:
        self.using = using
        self._lock = threading.Lock()
        self._reading: _Reading | None = None

    def begin(self) -> _Reading:
        """Begin to read, unless a reading is under way or is new; return that one."""
        with self._lock:  # nobody waits under it
            if self._reading is None or self._reading.is_old:
                self._reading = _Reading(self._read)
            return self._reading

    def collect(self) -> Iterable[Metric]:
        families = self.begin().wait()
        if families is None:
            self._say(f"no answer within {WAIT_SECONDS:g} s", "TimeoutError")
            return self._in_families([("ems_up", (), 0)])
        return families

    def _read(self) -> list[Metric]:
        connection = connections[self.using]  # of the thread of this reading alone
        try:
            connection.set_autocommit(True)  # the project may have it off
            return self._in_families(Reading(self.using).samples())
        except Error as error:
            self._say(error, type(error).__name__)
            return self._in_families([("ems_up", (), 0)])
        finally:
            connection.close()

    def _say(self, why: object, error: str) -> None:
        logger.warning(
            "The metrics of %s cannot be read: %s",
            *(self.using, why),
            extra=event("metrics.unread", database=self.using, error=error),
        )

    def _in_families(self, samples: Iterable[Sample]) -> list[Metric]:
        families: dict[str, Metric] = {}
        for name, labels, value in samples:
            metric = DATABASE[name]
            if name not in families:
                kind = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
                families[name] = kind(name, metric.help, labels=("database", *metric.labels))
            families[name].add_metric((self.using, *labels), float(value))  # type: ignore[attr-defined]
        return list(families.values())


class _Reading:
    """Makes one reading in a thread: a database that hangs must hold no scrape."""

    def __init__(self, read: Callable[[], list[Metric]]) -> None:
        self._read = read
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._old_at = self._began + HUNG_SECONDS
        self._families: list[Metric] | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="ems-metrics", daemon=True)
        self._thread.start()

    @property
    def is_old(self) -> bool:
        """Tell whether the next scrape is to begin another one; in a forked process always."""
        is_gone = not self._thread.is_alive() and not self._ended.is_set()
        return is_gone or time.monotonic() >= self._old_at

    def wait(self) -> list[Metric] | None:
        """Return what was read, or raise its error; None if it is not there in WAIT_SECONDS."""
        self._ended.wait(max(0.0, self._began + WAIT_SECONDS - time.monotonic()))
        if self._error is not None:
            raise self._error
        return self._families

    def _run(self) -> None:
        try:
            self._families = self._read()
        except BaseException as error:  # noqa: BLE001 - raised again in the threads that wait
            self._error = error
        finally:
            self._old_at = time.monotonic() + CACHE_SECONDS
            self._ended.set()
