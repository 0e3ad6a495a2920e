"""Registers the pages of the monitoring, one model in each file; the roll-ups are read-only."""

from monitoring.admin import (
    alarm_channel,
    alarm_rule,
    archive,
    consumption,
    error_class,
    hot_key,
    lake,
    latency,
    level,
    overview,
    position,
    records,
    run,
    traffic,
)

__all__ = [
    "alarm_channel",
    "alarm_rule",
    "archive",
    "consumption",
    "error_class",
    "hot_key",
    "lake",
    "latency",
    "level",
    "overview",
    "position",
    "records",
    "run",
    "traffic",
]
