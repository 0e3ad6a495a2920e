"""Says in words what an alarm is about."""

from __future__ import annotations

from datetime import timedelta

from django.utils.formats import number_format
from django.utils.translation import gettext as _

from monitoring.alarms.metrics import BYTES, COUNT, METRICS, PERIODS, SECONDS, SHARE
from monitoring.models import Alarm, Event
from streams.durations import brief
from streams.sharding import is_sharded


def figure(value: float, metric: str) -> str:
    """Return a value of the metric as people read it, in its unit."""
    unit = METRICS[metric].unit if metric in METRICS else COUNT
    if unit == SECONDS:
        return span(timedelta(seconds=value))
    if unit == SHARE:
        return f"{100 * value:.0f} %"
    if unit == PERIODS:
        return _("%s periods") % number_format(round(value, 1))
    if unit == BYTES:
        return _("%s GiB") % number_format(round(value / 2**30, 1))
    return str(number_format(int(value), force_grouping=True))


def span(value: timedelta) -> str:
    """Return a duration, without the second unit if it is zero: “10 min”."""
    units = ((86400, _("%d d")), (3600, _("%d h")), (60, _("%d min")))
    seconds = int(value.total_seconds())
    for length, text in units:
        if seconds >= length:
            return brief(value) if seconds % length else text % (seconds // length)
    return brief(value)


def summary(alarm: Alarm) -> str:
    """Return one line: what is measured, of what, and the value."""
    return f"{alarm}: {figure(alarm.value, alarm.metric)}"


def title(event: str, alarm: Alarm | None) -> str:
    """Return the title of a notification: what has happened, and to what."""
    if alarm is None:
        return _("EMS: a test of this channel")
    return f"[{alarm.get_severity_display()}] {Event(event).label}: {alarm}"


def lines(alarm: Alarm | None, page: str) -> list[str]:
    """Return the text of a notification in lines; ``page`` is the address of the alarm's page."""
    link = _("Page: %s") % page if page else ""
    if alarm is None:
        unlinked = _("Notifications have no link to the admin: set EMS['SITE_URL'].")
        return [_("No alarm fires because of it."), link or unlinked]
    where = f"{_('Database')}: {alarm._state.db}" if is_sharded() else ""
    runbook = _("Runbook: %s") % alarm.runbook if alarm.runbook else ""
    rule = _("Rule: %s") % alarm.rule
    found = [summary(alarm), alarm.detail, rule, where, link, runbook]
    return [line for line in found if line]
