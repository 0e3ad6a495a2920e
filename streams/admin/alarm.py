"""What nobody does at the moment, for the top of every page."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone
from django.utils.translation import gettext as _

from streams import doctor, maintenance
from streams.models import Consumer, ConsumerGroup


def alarm(using: str) -> str:
    """One sentence; empty when messages are sequenced and consumed."""
    sequenced = doctor.silence(maintenance.SEQUENCE, using)
    swept = doctor.silence(maintenance.SWEEP, using)
    if _silent(sequenced) and _silent(swept):
        ages = [age for age in (sequenced, swept) if age is not None]
        if not ages:
            return _("No consumer or beat has ever run here: start ems_consume.")
        return _("No consumer or beat has run since %s: messages wait.") % _since(min(ages))
    if sequenced is None or _silent(sequenced):
        return _("Nothing has been sequenced since %s: new messages wait in the inbox.") % _since(
            sequenced
        )
    if swept is None or _silent(swept):
        return _("Leases have not been swept since %s: what dead consumers held waits.") % _since(
            swept
        )
    groups, clients = ConsumerGroup.objects.using(using), Consumer.objects.using(using)
    if groups.filter(paused=False).exists() and not clients.live().exists():
        return _("No consumer is running: messages are sequenced, and nobody handles them.")
    return ""


def _silent(age: timedelta | None) -> bool:
    return age is None or age > doctor.SILENT


def _since(age: timedelta | None) -> str:
    if age is None:
        return _("the beginning")
    return f"{timezone.localtime(timezone.now() - age):%Y-%m-%d %H:%M:%S %Z}"
