"""The admin pages, one noun a file. Imported by django.contrib.admin only: nothing else of EMS
needs it to be installed."""

from streams.admin.pages import (
    config,
    consumer,
    cursor,
    dead,
    dedup,
    delivery,
    group,
    message,
    partition,
    retry,
    step,
    topic,
)

__all__ = [
    "config",
    "consumer",
    "cursor",
    "dead",
    "dedup",
    "delivery",
    "group",
    "message",
    "partition",
    "retry",
    "step",
    "topic",
]
