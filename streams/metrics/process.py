"""Counts what this process does, from its start on: an observer with Prometheus metrics."""

from __future__ import annotations

import time
from collections import Counter as Count
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram

from streams import telemetry
from streams.consume.outcome.any_order import Ends
from streams.errors import SendOutcomeUnknown, StreamsError
from streams.metrics.catalogue import COUNTER, HISTOGRAM, PROCESS, ExportedMetric
from streams.metrics.clock import DatabaseClock
from streams.metrics.histogram import QuickHistogram
from streams.models import Delivery, PreparedRow, PreparedState
from streams.telemetry import (
    CHECK,
    CLAIM,
    COMMIT,
    PREPARE,
    RELEASE,
    SEND,
    SEQUENCE,
    SETTLE,
    End,
    Handler,
)

REGISTRY = CollectorRegistry(support_collectors_without_names=True)

# The topic of a send that failed before anybody knew whether the topic exists: names that only a
# caller has given could be as many as there are calls.
UNKNOWN = ""

# Observed for each message, so they must be quick.
OF_EACH_MESSAGE = {"ems_handler_seconds", "ems_delivery_seconds"}


def _made(metric: ExportedMetric) -> Any:
    if metric.name in OF_EACH_MESSAGE:
        quick = QuickHistogram(metric)
        REGISTRY.register(quick)
        return quick
    options: dict[str, Any] = {"registry": REGISTRY}
    if metric.kind == COUNTER:
        return Counter(metric.name, metric.help, metric.labels, **options)
    return Histogram(metric.name, metric.help, metric.labels, buckets=metric.buckets, **options)


_metrics = {m.name: _made(m) for m in PROCESS.values() if m.kind in (COUNTER, HISTOGRAM)}


class ProcessMetrics(telemetry.Observer):
    """The metrics of this process, with a bound child for each topic and group: look-ups cost."""

    def __init__(self) -> None:
        self._children: dict[tuple[str, ...], Any] = {}
        self._groups: dict[tuple[str, int], tuple[str, str]] = {}  # by alias and id
        self._clock = DatabaseClock()
        self._topics: set[str] = set()  # to which a send has succeeded
        self._begin: dict[str, Callable[..., End]] = {
            SEND: self._send,
            CLAIM: self._claim,
            SETTLE: self._settle,
            RELEASE: self._settle,
            SEQUENCE: self._sequence,
            CHECK: self._check,
            PREPARE: self._prepare,
            COMMIT: self._commit,
        }

    def begin(self, what: str, *args: Any) -> End | None:
        return self._begin[what](*args)

    def around(self, handler: Handler, registration: Any, stretch: Any, using: str) -> Handler:
        place = registration.topic, registration.group
        took = self._child("ems_handler_seconds", *place).observe
        ahead = self._clock.ahead(using) if _is_first(stretch) else None
        delivered = self._child("ems_delivery_seconds", *place).observe

        def observed(argument: Any) -> Any:
            if ahead is not None:
                now = time.time() + ahead
                for message in argument if isinstance(argument, list | tuple) else (argument,):
                    delivered(now - message.created_at.timestamp())
            began = time.perf_counter()
            try:
                return handler(argument)
            finally:
                took(time.perf_counter() - began)

        return observed

    def handled(self, registration: Any, outcome: Any) -> None:
        place = registration.topic, registration.group
        counts = {
            "done": outcome.done,
            "failed": outcome.failed - outcome.dead,
            "dead": outcome.dead,
            "missing": outcome.missing,
            "passed": outcome.passed,
            "released": outcome.released,
        }
        for name, count in counts.items():
            if count:
                self._child("ems_handled_messages_total", *place, name).inc(count)

    def count(self, name: str, labels: tuple[str, ...]) -> None:
        self._child(name, *labels).inc()

    def _send(self, sending: Any) -> End:
        began = time.perf_counter()

        def end(results: Any, error: BaseException | None) -> None:
            seconds = time.perf_counter() - began
            topics = Count(getattr(message, "topic", UNKNOWN) for message in sending.messages)
            if error is None:
                self._topics.update(topics)
                for (topic, duplicate), count in Count(
                    (one.topic, one.duplicate) for one in results
                ).items():
                    outcome = "duplicate" if duplicate else "sent"
                    self._child("ems_sent_messages_total", topic, outcome).inc(count)
            else:
                outcome = "unknown" if isinstance(error, SendOutcomeUnknown) else "error"
                if outcome == "error" and isinstance(error, StreamsError):
                    topics = self._of_known(topics)
                for topic, count in topics.items():
                    self._child("ems_sent_messages_total", topic, outcome).inc(count)
            for topic in topics:
                self._child("ems_send_seconds", topic).observe(seconds)

        return end

    def _of_known(self, topics: Count[str]) -> Count[str]:
        known: Count[str] = Count()
        for topic, count in topics.items():
            known[topic if topic in self._topics else UNKNOWN] += count
        return known

    def _claim(self, claimer: Any, *args: Any) -> End:
        began = time.perf_counter()

        def end(claimed: Any, error: BaseException | None) -> None:
            if claimed:
                delivery = claimed if isinstance(claimed, Delivery) else claimed[0]
                labels = *self._names(claimer.group), str(delivery.kind)
                self._child("ems_claims_total", *labels).inc()
                seconds = time.perf_counter() - began
                self._child("ems_claim_seconds", *labels).observe(seconds)

        return end

    def _settle(self, settled: Delivery | Sequence[Ends], *args: Any) -> End:
        alone = isinstance(settled, Delivery)
        held = [settled] if isinstance(settled, Delivery) else [one.delivery for one in settled]
        labels = [(*self._names(one.group), str(one.kind)) for one in held]
        began = time.perf_counter()

        def end(result: Any, error: BaseException | None) -> None:
            if error is None:
                seconds = time.perf_counter() - began
                lost = () if alone else result
                for delivery, of_it in zip(held, labels, strict=True):
                    if delivery not in lost:
                        self._child("ems_settle_seconds", *of_it).observe(seconds)

        return end

    def _sequence(self, *args: Any) -> End:
        began = time.perf_counter()

        def end(done: Any, error: BaseException | None) -> None:
            if done and done.sequenced:
                self._child("ems_sequencer_messages_total").inc(done.sequenced)
                seconds = time.perf_counter() - began
                self._child("ems_sequencer_pass_seconds").observe(seconds)

        return end

    def _check(self, checker: str) -> End:
        began = time.perf_counter()

        def end(answer: Any, error: BaseException | None) -> None:
            self._child("ems_checks_total", checker, str(answer)).inc()
            self._child("ems_check_seconds", checker).observe(time.perf_counter() - began)

        return end

    def _prepare(self, sending: Any) -> End:
        (message,) = sending.messages

        def end(held: Any, error: BaseException | None) -> None:
            if error is None:
                self._topics.add(held.topic)
                outcome = "prepared" if held.created else "repeated"
                self._child("ems_prepares_total", held.topic, outcome).inc()
            else:
                for topic in self._of_known(Count([message.topic])):
                    self._child("ems_prepares_total", topic, "error").inc()

        return end

    def _commit(self, row: PreparedRow, using: str) -> End:
        def end(done: Any, error: BaseException | None) -> None:
            if error is None and row.state == PreparedState.SENT:
                self._child("ems_sent_messages_total", row.topic, "sent").inc()

        return end

    def _names(self, group: Any) -> tuple[str, str]:
        key = group._state.db, group.pk
        names = self._groups.get(key)
        if names is None:
            names = self._groups[key] = (group.topic.name, group.name)
        return names

    def _child(self, name: str, *labels: str) -> Any:
        key = name, *labels
        child = self._children.get(key)
        if child is None:
            metric = _metrics[name]
            child = self._children[key] = metric.labels(*labels) if labels else metric
        return child


def _is_first(stretch: Any) -> bool:
    """Tell whether its messages come to the group for the first time, by an ordinary claim."""
    return getattr(stretch, "attempt", 1) == 1 and getattr(stretch, "kind", "new") == "new"


_observer = ProcessMetrics()
_starting = Lock()


def start() -> None:
    """Count from now on what this process does."""
    with _starting:
        telemetry.observe(_observer)


def stop() -> None:
    """Count no longer."""
    telemetry.ignore(_observer)
