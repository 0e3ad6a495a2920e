"""Defines the signals of alarms. docs/guides/alarms.md shows how to listen to them.

Each is sent once, by the process that has changed the alarm, after its commit. A process that is
killed between the two sends none: who must be told needs a channel. A receiver that raises is
logged (logger ``django.dispatch``), and the work goes on. The sender is the class Alarm.
"""

from django.dispatch import Signal

# A rule has begun to fire for a subject. Arguments: alarm (the row), using.
alarm_fired = Signal()

# The condition of an alarm that fired no longer holds. Arguments: alarm (the row), using.
alarm_resolved = Signal()
