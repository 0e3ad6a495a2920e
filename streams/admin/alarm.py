"""Says, at the top of every page, which work no process does at the moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import Any
from urllib.parse import urlencode

from django.apps import apps
from django.db.models import Max, Model
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from streams.admin.parts.figures import BAD
from streams.durations import brief
from streams.models import (
    Consumer,
    ConsumerGroup,
    Message,
    Partition,
    PreparedRow,
    PreparedState,
    Step,
)
from streams.models.namespaces import own
from streams.models.step import SEQUENCE, SWEEP
from streams.observe import diagnoses
from streams.observe.inbox import waiting
from streams.observe.rewinds import rewound
from streams.observe.topics import damaged
from streams.retain.abandoned_groups import abandoned

ALARM = gettext_lazy("alarm")

# Tells whether who reads has a permission.
May = Callable[[str], bool]

# After this time a message waits for an offset, whatever the steps say of themselves.
NOT_SEQUENCED = timedelta(seconds=30)
# How long the pages tell of a log that was rewound.
REWOUND_FOR = timedelta(days=1)


def everything(permission: str) -> bool:
    return True


@dataclass(frozen=True)
class Link:
    """The name of a page of the admin, which a request resolves: threads do not know its URLs."""

    name: str
    args: tuple[Any, ...] = ()
    more: str = ""  # query and fragment

    @classmethod
    def to(cls, may: May, model: type[Model], pk: Any = None, **filters: str) -> Link | None:
        """Return the link to a row, or to the list; None for who may not view the table."""
        about = model._meta
        verbs = ("view", "change")
        if not any(may(f"{about.app_label}.{verb}_{about.model_name}") for verb in verbs):
            return None
        name = f"{about.app_label}_{about.model_name}"
        if pk is not None:
            return cls(f"{name}_change", (pk,))
        return cls(f"{name}_changelist", more=f"?{urlencode(filters)}" if filters else "")

    def url(self, site: str | None) -> str:
        """Return the URL in the admin ``site``; empty if the project has taken the page out."""
        try:
            return reverse(f"admin:{self.name}", args=self.args, current_app=site) + self.more
        except NoReverseMatch:
            return ""


@dataclass(frozen=True)
class Said:
    """A sentence about what is wrong, and the page that it leads to; without text, nothing.

    ``state`` says it in a word, and ``level`` how bad that is. If one ``covers`` what it is
    ``about``, no other one about the same is shown.
    """

    text: str = ""
    link: Link | None = None
    state: Any = ALARM
    level: str = BAD
    about: str = ""
    covers: bool = False


def alarm(using: str, may: May = everything) -> Said:
    """Return one sentence, or an empty one when messages are sequenced and consumed.

    ``may`` tells whether who reads it has a permission: other apps ask for theirs.

    This process asks the tables itself: the alarms of other apps, which come last, are evaluated
    by a process that may be what has stopped.
    """
    return next(chain(trouble(using, may), _of_apps(using, may)), Said())


def glance(using: str, may: May = everything) -> Said:
    """Return such a sentence from what a few short statements tell: for one of many databases."""
    return next(chain(_stopped(using, may), _of_apps(using, may)), Said())


def trouble(using: str, may: May) -> Iterator[Said]:
    """Yield what these tables say, the worst first; nothing else if nobody sequences or sweeps."""
    if stopped := next(_stopped(using, may), None):
        yield stopped
        return
    if found := damaged(using):
        text = _("%s cannot be sequenced: its messages wait. ems_doctor says how to repair it.")
        names = ", ".join(one.name for one in found)
        yield Said(text % names, Link.to(may, Partition, found[0].partition_id))
    oldest = max(waiting(using).items(), key=lambda one: one[1], default=None)
    if oldest is not None and oldest[1] > NOT_SEQUENCED:
        (topic, number), age = oldest
        text = _("A message of %(place)s has waited for an offset for %(age)s.")
        values = {"place": f"{topic}/{number}", "age": brief(age)}
        yield Said(text % values, Link.to(may, Message, state="inbox"))
    groups = ConsumerGroup.objects.using(using)
    clients = Consumer.objects.using(using).filter(own("group__name"))
    if groups.filter(paused=False).exists() and not clients.live().exists():
        text = _("No consumer is running: messages are sequenced, and nobody handles them.")
        yield Said(text, Link.to(may, ConsumerGroup))
    yield from _prepared(using, may)
    if found_back := rewound(using, REWOUND_FOR):
        text = _("The log of %s was rewound: a failover or a restore has lost messages.")
        names = ", ".join(sorted({str(one.partition) for one in found_back}))
        yield Said(text % names, Link.to(may, Partition, found_back[0].partition.pk))
    for one in abandoned(using):
        yield Said(f"{one}.", Link.to(may, ConsumerGroup, one.group.pk))


def _prepared(using: str, may: May) -> Iterator[Said]:
    prepared = PreparedRow.objects.using(using)
    states = prepared.filter(state__in=[PreparedState.MANUAL, PreparedState.UNSENT]).order_by()
    there = set(states.values_list("state", flat=True).distinct())
    texts = {
        PreparedState.MANUAL: _("Prepared messages wait for a decision by a person."),
        PreparedState.UNSENT: _("Prepared messages are committed, and their topics refuse them."),
    }
    for state, text in texts.items():
        if state in there:
            yield Said(text, Link.to(may, PreparedRow, state=state.value))
    if prepared.disputed().exists():
        text = _("A check has rolled back prepared messages that their callers commit.")
        yield Said(text, Link.to(may, PreparedRow))


def _stopped(using: str, may: May) -> Iterator[Said]:
    """Yield what the steps say of themselves; nothing if they run."""
    silences = diagnoses.silences([SEQUENCE, SWEEP], using)
    sequenced, swept = (_is_done(silences.get(step)) for step in (SEQUENCE, SWEEP))
    steps = Link.to(may, Step)
    if not sequenced and not swept:
        text = _("No consumer or beat has run since %s: messages wait.")
        yield Said(text % _since(using), steps)
    elif not sequenced:
        text = _("Nothing has been sequenced since %s: new messages wait in the inbox.")
        yield Said(text % _since(using, SEQUENCE), steps)
    elif not swept:
        text = _("Leases have not been swept since %s: what dead consumers held waits.")
        yield Said(text % _since(using, SWEEP), steps)


def _of_apps(using: str, may: May) -> Iterator[Said]:
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
