"""Says at the top of every page of the admin that alarms fire."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import ngettext

from monitoring.alarms.texts import summary
from monitoring.alarms.unresolved import firing
from monitoring.models import AlarmState, Severity


def sentences(using: str) -> Iterator[str]:
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
    yield text % {"count": len(found), "first": f"{found[0].rule}, {summary(found[0])}."}
