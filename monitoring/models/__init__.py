"""Defines the tables of the monitoring. Spark jobs write the roll-ups, a step the samples."""

from monitoring.models.archive import ArchivedDay, LedgerEntry, ReplayedMessage
from monitoring.models.backlog import Backlog
from monitoring.models.consumption import Consumption
from monitoring.models.error_class import ErrorClass
from monitoring.models.hot_key import HotKey
from monitoring.models.latency import Latency, Leg
from monitoring.models.overview import Overview
from monitoring.models.position import Position
from monitoring.models.run import Run, RunState
from monitoring.models.sample import GroupSample, PartitionSample
from monitoring.models.traffic import Traffic

__all__ = [
    "ArchivedDay",
    "Backlog",
    "Consumption",
    "ErrorClass",
    "GroupSample",
    "HotKey",
    "Latency",
    "LedgerEntry",
    "Leg",
    "Overview",
    "PartitionSample",
    "Position",
    "ReplayedMessage",
    "Run",
    "RunState",
    "Traffic",
]
