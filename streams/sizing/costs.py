"""Reads what one message costs in processor time, as the benchmarks have measured it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("costs.json")


@dataclass(frozen=True)
class UnitCosts:
    """Microseconds of a message, each part measured alone; those of a group are for one group."""

    send: float  # by one call
    send_many: float  # by a call of ``a_call`` messages
    sequence: float
    purge: float
    batch: float  # handled in batches of 100
    one: float  # by a handler of one message


@dataclass(frozen=True)
class SustainedCosts:
    """Microseconds of a message while all parts work at the same time, at ``rate`` a second."""

    rate: float
    groups: int
    server: float
    senders: float
    consumers: float
    purge: float


@dataclass(frozen=True)
class Costs:
    """The costs of a message of ``size`` bytes, and on what they were measured."""

    measured: dict[str, Any]
    size: int
    a_call: int
    server: UnitCosts
    client: UnitCosts
    sequencer: float  # messages a second that one sequencer has given offsets
    together: SustainedCosts

    @property
    def server_factor(self) -> float:
        """Return how many times the sum of its parts a message costs the server."""
        one = self.server
        parts = one.send + one.sequence + self.together.groups * one.one + one.purge
        return self.together.server / parts

    @property
    def sender_factor(self) -> float:
        return self.together.senders / self.client.send

    @property
    def consumer_factor(self) -> float:
        """Return the same of consumers, which claim little at a time while they keep up."""
        parts = self.client.sequence + self.together.groups * self.client.one
        return self.together.consumers / parts


@cache
def costs() -> Costs:
    """Return the costs that are in the package."""
    kept = json.loads(FILE.read_text())
    return Costs(
        **{
            **kept,
            "server": UnitCosts(**kept["server"]),
            "client": UnitCosts(**kept["client"]),
            "together": SustainedCosts(**kept["together"]),
        }
    )
