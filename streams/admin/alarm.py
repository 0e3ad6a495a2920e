"""Says, at the top of every page, which work no process does at the moment."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Max
from django.utils import timezone
from django.utils.translation import gettext as _

from streams.models import Consumer, ConsumerGroup, Step
from streams.models.namespaces import own
from streams.models.step import SEQUENCE, SWEEP
from streams.observe import diagnoses
from streams.observe.topics import damaged
from streams.retain.abandoned_groups import abandoned


def alarm(using: str) -> str:
    """Return one sentence, or an empty text when messages are sequenced and consumed."""
    sequenced = _is_done(diagnoses.silence(SEQUENCE, using))
    swept = _is_done(diagnoses.silence(SWEEP, using))
    if not sequenced and not swept:
        return _("No consumer or beat has run since %s: messages wait.") % _since(using)
    if not sequenced:
        since = _since(using, SEQUENCE)
        return _("Nothing has been sequenced since %s: new messages wait in the inbox.") % since
    if not swept:
        since = _since(using, SWEEP)
        return _("Leases have not been swept since %s: what dead consumers held waits.") % since
    if found := damaged(using):
        text = _("%s cannot be sequenced: its messages wait. ems_doctor says how to repair it.")
        return text % ", ".join(one.name for one in found)
    groups = ConsumerGroup.objects.using(using)
    clients = Consumer.objects.using(using).filter(own("group__name"))
    if groups.filter(paused=False).exists() and not clients.live().exists():
        return _("No consumer is running: messages are sequenced, and nobody handles them.")
    return next((f"{group}." for group in abandoned(using)), "")


def _is_done(silence: timedelta | None) -> bool:
    return silence is not None and silence <= diagnoses.SILENT


def _since(using: str, *names: str) -> str:
    steps = Step.objects.using(using).filter(name__in=names or (SEQUENCE, SWEEP))
    last = steps.aggregate(last=Max("last_run_at"))["last"]
    if last is None:
        return _("the tables of EMS were created")
    return f"{timezone.localtime(last):%Y-%m-%d %H:%M:%S %Z}"
