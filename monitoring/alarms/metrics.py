"""Lists the metrics: how each is measured, its unit, and its default rule."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from django.db import Error, connections

from monitoring.alarms import calls, clock, groups, log, readers
from monitoring.alarms.measured import Values
from monitoring.live.steps import PERIODS as OVERDUE
from monitoring.models import Metric, Operator, Severity
from streams.logs import event
from streams.retain.readers import NEAR

logger = logging.getLogger("streams.alarms")

COUNT, SECONDS, SHARE, PERIODS, BYTES = "count", "seconds", "share", "periods", "bytes"
MINUTE = 60


@dataclass(frozen=True)
class Measure:
    """How a metric is measured, and the rule that holds unless the project has another."""

    values: Callable[[str], Values | None]
    unit: str
    threshold: float
    for_seconds: int = 0
    severity: Severity = Severity.WARNING
    enabled: bool = True
    operator: Operator = Operator.ABOVE


METRICS: dict[str, Measure] = {
    Metric.EXPIRED: Measure(groups.expired, COUNT, 0),
    Metric.SLOW_CALL: Measure(calls.slow_call, SHARE, 0.5),
    Metric.LAG: Measure(groups.lag, COUNT, 100_000, 5 * MINUTE, enabled=False),
    Metric.LAG_AGE: Measure(groups.lag_age, SECONDS, 10 * MINUTE, 5 * MINUTE, Severity.CRITICAL),
    # On the ladder five attempts have failed by then (after 0, 10, 40, 100 and 220 s), so it is
    # neither a restart nor a short outage. If nobody acts, lag_age becomes the critical one.
    Metric.BLOCKED: Measure(groups.blocked, SECONDS, 5 * MINUTE),
    Metric.DEAD_NEW: Measure(groups.dead_new, COUNT, 0),
    Metric.NO_CONSUMER: Measure(groups.no_consumer, COUNT, 0, 2 * MINUTE, Severity.CRITICAL),
    # Twice in a row: the age of a message of a long transaction is high before it is sequenced.
    Metric.NOT_SEQUENCED: Measure(log.not_sequenced, SECONDS, 30, 15, Severity.CRITICAL),
    Metric.STEP_LATE: Measure(clock.step_late, PERIODS, OVERDUE, 15, Severity.CRITICAL),
    Metric.PURGE_LATE: Measure(clock.purge_late, PERIODS, OVERDUE),
    Metric.ROLLUP_LATE: Measure(clock.rollup_late, PERIODS, 15),
    Metric.MISSING: Measure(log.missing, COUNT, 0, 0, Severity.CRITICAL),
    Metric.AUDIT_FINDING: Measure(log.audit_finding, COUNT, 0, 0, Severity.CRITICAL),
    Metric.RECONCILE: Measure(log.reconcile, COUNT, 0, 0, Severity.CRITICAL),
    Metric.PREPARED: Measure(log.prepared, COUNT, 0, 0, Severity.CRITICAL),
    Metric.UNREAD: Measure(readers.retention_used, SHARE, NEAR),
    Metric.REWOUND: Measure(log.rewinds, COUNT, 0, 0, Severity.CRITICAL),
    Metric.DISK: Measure(log.disk, BYTES, 50 * 2**30, enabled=False),
}


def measure(metric: str, using: str) -> Values | None:
    """Return the values of the metric; None if they are unknown, also because of an error."""
    try:
        return METRICS[metric].values(using)
    except Error as error:
        connections[using].close_if_unusable_or_obsolete()
        logger.warning(
            "The metric %s is unknown: %s",
            *(metric, error),
            extra=event("alarm.unknown", metric=metric, error=type(error).__name__),
        )
        return None
