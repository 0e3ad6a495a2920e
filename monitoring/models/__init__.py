"""Defines the roll-up tables, one in each file. Only the Spark jobs write them."""

from monitoring.models.archive import ArchivedDay, LedgerEntry, ReplayedMessage
from monitoring.models.backlog import Backlog
from monitoring.models.consumption import Consumption
from monitoring.models.error_class import ErrorClass
from monitoring.models.hot_key import HotKey
from monitoring.models.latency import Latency, Leg
from monitoring.models.position import Position
from monitoring.models.run import Run, RunState
from monitoring.models.traffic import Traffic

__all__ = [
    "ArchivedDay",
    "Backlog",
    "Consumption",
    "ErrorClass",
    "HotKey",
    "Latency",
    "LedgerEntry",
    "Leg",
    "Position",
    "ReplayedMessage",
    "Run",
    "RunState",
    "Traffic",
]
