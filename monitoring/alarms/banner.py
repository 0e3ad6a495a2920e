"""Says at the top of every page of the admin that alarms fire."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import ngettext

from monitoring.alarms.texts import summary
from monitoring.alarms.unresolved import firing
from monitoring.models import AlarmState, Severity
from streams.admin.alarm import Link, May, Said


def sentences(using: str, may: May) -> Iterator[Said]:
    """Yield one sentence if critical alarms fire that nobody has acknowledged."""
    found = [
        alarm
        for alarm in firing(using)
        if alarm.severity == Severity.CRITICAL and alarm.state == AlarmState.FIRING
    ]
    if not found:
        return
    text = ngettext(
        "%(count)d alarm fires: %(first)s", "%(count)d alarms fire: %(first)s", len(found)
    )
    told = text % {"count": len(found), "first": f"{summary(found[0])}."}
    yield Said(told, link_to(may, found[0].pk))


def link_to(may: May, pk: int) -> Link | None:
    """Return the link to an alarm on its page; None for who may not see that."""
    if not may("ems_monitoring.view_overview"):
        return None
    return Link("ems_monitoring_overview_alarms", more=f"#alarm-{pk}")
