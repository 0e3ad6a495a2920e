"""Defines the tables of the monitoring. Spark jobs write the roll-ups, a step the samples."""

from monitoring.models.alarm import Alarm, AlarmState, Metric, Severity
from monitoring.models.alarm_audit import AuditFinding, AuditPlace, AuditSource
from monitoring.models.alarm_channel import AlarmChannel, ChannelKind
from monitoring.models.alarm_notification import AlarmNotification, Event, NotificationState
from monitoring.models.alarm_rule import AlarmRule, Operator
from monitoring.models.archive import ArchivedDay, LedgerEntry, ReplayedMessage, StagedMessage
from monitoring.models.consumption import Consumption
from monitoring.models.error_class import ErrorClass
from monitoring.models.hot_key import HotKey
from monitoring.models.lake import LakeFile, LakePosition
from monitoring.models.latency import Latency, Leg
from monitoring.models.level import (
    BacklogLevel,
    ConsumptionLevel,
    ErrorLevel,
    Grain,
    LatencyLevel,
    TrafficLevel,
)
from monitoring.models.mark import Mark, MarkKind
from monitoring.models.open_delivery import OpenDelivery
from monitoring.models.overview import Overview
from monitoring.models.position import Position
from monitoring.models.run import Run, RunState
from monitoring.models.sample import GroupSample, PartitionSample
from monitoring.models.traffic import Traffic

__all__ = [
    "Alarm",
    "AlarmChannel",
    "AlarmNotification",
    "AlarmRule",
    "AlarmState",
    "ArchivedDay",
    "AuditFinding",
    "AuditPlace",
    "AuditSource",
    "BacklogLevel",
    "ChannelKind",
    "Consumption",
    "ConsumptionLevel",
    "ErrorClass",
    "ErrorLevel",
    "Event",
    "Grain",
    "GroupSample",
    "HotKey",
    "LakeFile",
    "LakePosition",
    "Latency",
    "LatencyLevel",
    "LedgerEntry",
    "Leg",
    "Mark",
    "MarkKind",
    "Metric",
    "NotificationState",
    "OpenDelivery",
    "Operator",
    "Overview",
    "PartitionSample",
    "Position",
    "ReplayedMessage",
    "Run",
    "RunState",
    "Severity",
    "StagedMessage",
    "Traffic",
    "TrafficLevel",
]
