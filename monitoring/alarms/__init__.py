"""Alarms: rules that are evaluated, alarms that fire, and channels that are told."""

from monitoring.alarms.unresolved import firing

__all__ = ["firing"]
