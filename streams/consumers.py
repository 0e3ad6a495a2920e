"""Registers the consumer of EMS["TWO_PHASE_TOPIC"], if the project has one."""

from __future__ import annotations

from streams.conf import settings
from streams.consume.registry import consumer
from streams.two_phase.submission import GROUP, submitted

if (_topic := settings().TWO_PHASE_TOPIC) is not None:
    consumer(_topic, group=GROUP, ordered=True, atomic=True, start="earliest")(submitted)
