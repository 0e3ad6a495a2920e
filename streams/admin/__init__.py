"""Registers the admin pages. Only django.contrib.admin imports this package, so EMS also works
without the admin."""

from streams.admin.pages import (
    config,
    consumer,
    cursor,
    dead,
    dedup,
    delivery,
    endpoint,
    group,
    letter_edit,
    message,
    partition,
    prepared,
    records,
    redrive,
    retry,
    step,
    token,
    topic,
)

__all__ = [
    "config",
    "consumer",
    "cursor",
    "dead",
    "dedup",
    "delivery",
    "endpoint",
    "group",
    "letter_edit",
    "message",
    "partition",
    "prepared",
    "records",
    "redrive",
    "retry",
    "step",
    "token",
    "topic",
]
