"""Says, at the top of every page, which work no process does at the moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import chain

from django.apps import apps
from django.db.models import Max
from django.utils import timezone
from django.utils.translation import gettext as _

from streams.durations import brief
from streams.models import Consumer, ConsumerGroup, PreparedRow, PreparedState, Step
from streams.models.namespaces import own
from streams.models.step import SEQUENCE, SWEEP
from streams.observe import diagnoses
from streams.observe.inbox import waiting
from streams.observe.rewinds import rewound
from streams.observe.topics import damaged
from streams.retain.abandoned_groups import abandoned

# After this time a message waits for an offset, whatever the steps say of themselves.
NOT_SEQUENCED = timedelta(seconds=30)
# How long the pages tell of a log that was rewound.
REWOUND_FOR = timedelta(days=1)


def alarm(using: str, may: Callable[[str], bool] = lambda permission: True) -> str:
    """Return one sentence, or an empty text when messages are sequenced and consumed.

    ``may`` tells whether who reads it has a permission: other apps ask for theirs.

    This process asks the tables itself: the alarms of other apps, which come last, are evaluated
    by a process that may be what has stopped.
    """
    if said := _stopped(using):
        return said
    if found := damaged(using):
        text = _("%s cannot be sequenced: its messages wait. ems_doctor says how to repair it.")
        return text % ", ".join(one.name for one in found)
    oldest = max(waiting(using).items(), key=lambda one: one[1], default=None)
    if oldest is not None and oldest[1] > NOT_SEQUENCED:
        (topic, number), age = oldest
        text = _("A message of %(place)s has waited for an offset for %(age)s.")
        return text % {"place": f"{topic}/{number}", "age": brief(age)}
    groups = ConsumerGroup.objects.using(using)
    clients = Consumer.objects.using(using).filter(own("group__name"))
    if groups.filter(paused=False).exists() and not clients.live().exists():
        return _("No consumer is running: messages are sequenced, and nobody handles them.")
    prepared = PreparedRow.objects.using(using)
    states = prepared.filter(state__in=[PreparedState.MANUAL, PreparedState.UNSENT]).order_by()
    there = set(states.values_list("state", flat=True).distinct())
    if PreparedState.MANUAL in there:
        return _("Prepared messages wait for a decision by a person.")
    if PreparedState.UNSENT in there:
        return _("Prepared messages are committed, and their topics refuse them.")
    if prepared.disputed().exists():
        return _("A check has rolled back prepared messages that their callers commit.")
    if found_back := rewound(using, REWOUND_FOR):
        text = _("The log of %s was rewound: a failover or a restore has lost messages.")
        return text % ", ".join(sorted({str(one.partition) for one in found_back}))
    sentences = chain((f"{group}." for group in abandoned(using)), _of_apps(using, may))
    return next(sentences, "")


def glance(using: str, may: Callable[[str], bool] = lambda permission: True) -> str:
    """Return such a sentence from what a few short statements tell: for one of many databases."""
    return _stopped(using) or next(_of_apps(using, may), "")


def _stopped(using: str) -> str:
    """Return what the steps say of themselves; an empty text if they run."""
    silences = diagnoses.silences([SEQUENCE, SWEEP], using)
    sequenced, swept = (_is_done(silences.get(step)) for step in (SEQUENCE, SWEEP))
    if not sequenced and not swept:
        return _("No consumer or beat has run since %s: messages wait.") % _since(using)
    if not sequenced:
        since = _since(using, SEQUENCE)
        return _("Nothing has been sequenced since %s: new messages wait in the inbox.") % since
    if not swept:
        since = _since(using, SWEEP)
        return _("Leases have not been swept since %s: what dead consumers held waits.") % since
    return ""


def _of_apps(using: str, may: Callable[[str], bool]) -> Iterator[str]:
    """Yield the alarms of other apps: ``ems_alarms`` of their AppConfig."""
    for config in apps.get_app_configs():
        if hasattr(config, "ems_alarms"):
            yield from config.ems_alarms(using, may)


def _is_done(silence: timedelta | None) -> bool:
    return silence is not None and silence <= diagnoses.SILENT


def _since(using: str, *names: str) -> str:
    steps = Step.objects.using(using).filter(name__in=names or (SEQUENCE, SWEEP))
    last = steps.aggregate(last=Max("last_run_at"))["last"]
    if last is None:
        return _("the tables of EMS were created")
    return f"{timezone.localtime(last):%Y-%m-%d %H:%M:%S %Z}"
