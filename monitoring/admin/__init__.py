"""Registers the lists of the roll-ups, one model in each file; all of them are read-only."""

from monitoring.admin import (
    archive,
    backlog,
    consumption,
    error_class,
    hot_key,
    latency,
    overview,
    position,
    run,
    traffic,
)

__all__ = [
    "archive",
    "backlog",
    "consumption",
    "error_class",
    "hot_key",
    "latency",
    "overview",
    "position",
    "run",
    "traffic",
]
