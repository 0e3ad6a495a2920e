"""Defines ems_relay, which is ems_consume for the relays of the project."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streams.consume.registry import Registration
from streams.management.commands import ems_consume
from streams.relays.relay import is_relay


class Command(ems_consume.Command):
    help = "Run the relays of the project until stopped by SIGTERM; ems_consume runs them, too."

    def chosen(self, options: dict[str, Any]) -> Iterable[Registration]:
        return filter(is_relay, super().chosen(options))
