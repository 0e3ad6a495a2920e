"""The lists of the roll-ups, one noun a file; all of them read-only."""

from monitoring.admin import (
    archive,
    backlog,
    consumption,
    error_class,
    hot_key,
    latency,
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
    "position",
    "run",
    "traffic",
]
