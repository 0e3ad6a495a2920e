"""Exposes what a consumer process is doing now: its workers, and who it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streams.metrics.catalogue import PROCESS
from streams.release import version

# Topic, group, how many calls it may make at once, and how many deliveries it has in hand.
Work = tuple[str, str, int, int]


class ConsumerCollector(Collector):
    """The metrics of the fleet, asked at each scrape, so that the workers note nothing."""

    def __init__(
        self, work: Callable[[], Iterable[Work]], clients: Callable[[], Iterable[str]]
    ) -> None:
        self._work = work
        self._clients = clients

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        workers, busy, info = (
            GaugeMetricFamily(name, PROCESS[name].help, labels=PROCESS[name].labels)
            for name in ("ems_workers", "ems_workers_busy", "ems_consumer_info")
        )
        for topic, group, at_once, in_hand in self._work():
            workers.add_metric((topic, group), at_once)
            busy.add_metric((topic, group), in_hand)
        for client in self._clients():
            info.add_metric((client, version() or ""), 1)
        return [workers, busy, info]
