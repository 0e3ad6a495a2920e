"""Finds the rules in force: the default ones of the code, and what the project has changed.

A default rule is no row. So an upgrade may improve it, and what an operator has changed stays: a
row of AlarmRule with its name overrides the fields that are filled in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import Prefetch
from django.utils.translation import gettext as _

from monitoring.alarms.measured import Subject
from monitoring.alarms.metrics import METRICS
from monitoring.models import AlarmChannel, AlarmRule, Operator
from streams.errors import StreamsError
from streams.models import UtcNow


class UnknownRule(StreamsError, LookupError):
    """There is no alarm rule of this name."""


@dataclass(frozen=True)
class Rule:
    """A rule in force. ``channels`` are ids; None are all channels that are enabled."""

    name: str
    metric: str
    operator: str
    threshold: float
    severity: str
    for_time: timedelta = timedelta(0)
    enabled: bool = True
    topic: str = ""
    group: str = ""
    channels: frozenset[int] | None = None
    remind: timedelta | None = None
    muted_until: datetime | None = None
    runbook: str = ""
    pk: int | None = field(default=None, compare=False)  # of its row, if it has one

    def covers(self, subject: Subject) -> bool:
        return self.topic in ("", subject.topic) and self.group in ("", subject.group)

    def is_broken_by(self, number: float) -> bool:
        above = number > self.threshold
        return above if self.operator == Operator.ABOVE else number < self.threshold

    def is_muted(self, now: datetime) -> bool:
        return self.muted_until is not None and self.muted_until > now

    @property
    def unit(self) -> str:
        return METRICS[self.metric].unit


def rules(using: str) -> list[Rule]:
    """Return all rules by name, also those that are switched off."""
    # With the name alone Django would ask the project's routers.
    channels = Prefetch("channels", AlarmChannel.objects.using(using))
    rows = AlarmRule.objects.using(using).prefetch_related(channels)
    found = {row.name: _of(row) for row in rows if row.metric in METRICS}
    for name in METRICS:
        found.setdefault(name, _default(name))
    return [found[name] for name in sorted(found)]


def find_rule(name: str, using: str) -> Rule:
    """Return one rule; raises UnknownRule."""
    for one in rules(using):
        if one.name == name:
            return one
    raise UnknownRule(_("There is no alarm rule %r.") % name)


def channels_of(one: Rule, channels: list[AlarmChannel]) -> Iterator[AlarmChannel]:
    """Yield those of ``channels`` that the rule tells."""
    for channel in channels:
        if channel.enabled and (one.channels is None or channel.pk in one.channels):
            yield channel


def tell_these(rule: AlarmRule, channels: Iterable[AlarmChannel], using: str) -> None:
    """Let the rule tell these channels; with none, it tells all."""
    # Written as rows: ``rule.channels.set()`` would ask the project's routers.
    links = AlarmRule.channels.through._default_manager.using(using)
    links.filter(alarmrule=rule.pk).delete()
    chosen = {channel.pk for channel in channels}
    links.bulk_create(links.model(alarmrule_id=rule.pk, alarmchannel_id=pk) for pk in chosen)


def told_by_these_alone(channels: Iterable[AlarmChannel], using: str) -> list[str]:
    """Return the names of the rules for which only channels of these were chosen.

    Without them such a rule would tell all channels.
    """
    ids = {channel.pk for channel in channels}
    chosen = {rule.name: rule.channels for rule in rules(using) if rule.channels}
    return [name for name, those in chosen.items() if those <= ids]


def mute(name: str, time: timedelta | None, using: str) -> None:
    """Tell no channel of this rule for ``time`` from now; None ends that. Raises UnknownRule.

    What still fires afterwards is told then.
    """
    one = find_rule(name, using)
    rows = AlarmRule.objects.using(using)
    rows.get_or_create(name=name, defaults={"metric": one.metric, "operator": one.operator})
    rows.filter(name=name).update(muted_until=None if time is None else UtcNow(time))


def _default(name: str) -> Rule:
    measured = METRICS[name]
    return Rule(
        name=name,
        metric=name,
        operator=measured.operator,
        threshold=measured.threshold,
        severity=measured.severity,
        for_time=timedelta(seconds=measured.for_seconds),
        enabled=measured.enabled,
    )


def _of(row: AlarmRule) -> Rule:
    default = METRICS[row.metric]
    seconds = default.for_seconds if row.for_seconds is None else row.for_seconds
    # A rule of the project's own is made to be used; a default one may be off.
    enabled = default.enabled if row.name in METRICS else True
    chosen = frozenset(channel.pk for channel in row.channels.all())
    return Rule(
        name=row.name,
        metric=row.metric,
        operator=row.operator,
        threshold=default.threshold if row.threshold is None else row.threshold,
        severity=row.severity or default.severity,
        for_time=timedelta(seconds=seconds),
        enabled=enabled if row.enabled is None else row.enabled,
        topic=row.topic,
        group=row.group,
        channels=chosen or None,
        remind=None if row.remind_hours is None else timedelta(hours=row.remind_hours),
        muted_until=row.muted_until,
        runbook=row.runbook,
        pk=row.pk,
    )
