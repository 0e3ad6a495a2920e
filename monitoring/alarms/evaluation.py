"""Evaluates the rules, and moves alarms from pending over firing to resolved.

The number of statements does not grow with the number of groups or alarms. Two processes may
evaluate at once, and one may be killed at any point:

- A condition that begins to hold makes a pending row. (rule, subject, slot) is unique, so the
  second one to insert it makes none.
- All changes of the state, and the notifications of them, are written in one transaction, under the
  locks of their rows: the state is read again there.
- What is unknown changes nothing. A look that is old ends no alarm that began after it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from monitoring import signals
from monitoring.alarms.home import copy_from_home
from monitoring.alarms.measured import Subject, Value, Values
from monitoring.alarms.metrics import measure
from monitoring.alarms.rules import Rule, channels_of, rules
from monitoring.alarms.texts import summary
from monitoring.models import (
    Alarm,
    AlarmChannel,
    AlarmNotification,
    AlarmState,
    Event,
    Severity,
)
from monitoring.models.alarm import MAX_SUBJECT, MAX_TEXT
from streams.database.retrying import retrying
from streams.database.transactions import own_transaction
from streams.logs import event
from streams.models import UtcNow
from streams.steps.turns import is_turn

logger = logging.getLogger("streams.alarms")

STEP = "alarms"
EVERY = timedelta(seconds=15)

LEVELS = {
    Severity.CRITICAL: logging.ERROR,
    Severity.WARNING: logging.WARNING,
    Severity.INFO: logging.INFO,
}

# What an alarm that goes on takes from its rule and from the new value. A detail alone, such as an
# age, is not worth a write.
COMPARED = ("value", "severity", "threshold", "runbook")
NOTED = (*COMPARED, "detail")

# The rule and the subject of an alarm: at most one unresolved row has them.
Key = tuple[str, str]


def evaluate_if_due(using: str) -> None:
    """Evaluate all rules, unless any process has in the last EVERY."""
    if is_turn(STEP, EVERY, using):
        copy_from_home(using)
        evaluate(using)


def evaluate(using: str) -> None:
    """Measure all metrics that a rule needs, and change the alarms accordingly."""
    unresolved = list(Alarm.objects.using(using).unresolved())  # before the look: see has_ended()
    in_force = {rule.name: rule for rule in rules(using) if rule.enabled}
    measured = {
        metric: measure(metric, using) for metric in {rule.metric for rule in in_force.values()}
    }
    look = Observed({alarm.pk for alarm in unresolved}, in_force, measured)
    known = {_key(alarm) for alarm in unresolved}
    new = [look.alarm(key) for key in look.broken if key not in known]
    if new:
        # ignore_conflicts: another process may have seen the same a moment before.
        retrying(_insert, using, new, using)
    if new or any(look.would_change(alarm) for alarm in unresolved):
        fired, resolved = retrying(_change, using, look, using)
        for alarm in fired:
            _say_fired(alarm, using)
        for alarm in resolved:
            _say_resolved(alarm, using)


@dataclass
class Observed:
    """What one evaluation has seen: the conditions that hold, and what is unknown.

    ``began_before``: the ids of the unresolved alarms that were there before it looked.
    """

    began_before: set[int]
    rules: dict[str, Rule]
    measured: dict[str, Values | None]
    broken: dict[Key, tuple[Subject, Value]] = field(default_factory=dict)
    unknown: set[Key] = field(default_factory=set)

    def __post_init__(self) -> None:
        for rule in self.rules.values():
            for subject, value in (self.measured[rule.metric] or {}).items():
                if not rule.covers(subject):
                    continue
                key = (rule.name, str(subject)[:MAX_SUBJECT])
                if value.number is None:
                    self.unknown.add(key)
                elif rule.is_broken_by(value.number):
                    self.broken[key] = subject, value

    def alarm(self, key: Key) -> Alarm:
        rule, (subject, value) = self.rules[key[0]], self.broken[key]
        return Alarm(
            rule=rule.name,
            metric=rule.metric,
            subject=key[1],
            topic=subject.topic,
            group=subject.group,
            severity=rule.severity,
            threshold=rule.threshold,
            runbook=rule.runbook,
            value=value.number or 0.0,
            detail=value.detail[:MAX_TEXT],
        )

    def has_ended(self, alarm: Alarm) -> bool:
        """Tell whether the condition is known to be over. A rule that is off has none.

        Of one that another process has seen begin since, nothing is known. Its id tells it, and no
        time: the clock of the database may be set back.
        """
        if alarm.pk not in self.began_before:
            return False
        rule = self.rules.get(alarm.rule)
        if rule is None:
            return True
        if self.measured[rule.metric] is None or _key(alarm) in self.unknown:
            return False
        return _key(alarm) not in self.broken

    def would_change(self, alarm: Alarm) -> bool:
        if self.has_ended(alarm) or alarm.state != AlarmState.ACKNOWLEDGED:
            return True
        return self.is_noted_otherwise(alarm)

    def is_noted_otherwise(self, alarm: Alarm) -> bool:
        """Tell whether the value is a new one, or the rule was changed since."""
        if _key(alarm) not in self.broken:
            return False
        seen = self.alarm(_key(alarm))
        return any(getattr(seen, name) != getattr(alarm, name) for name in COMPARED)


def _insert(alarms: list[Alarm], using: str) -> None:
    Alarm.objects.using(using).bulk_create(alarms, ignore_conflicts=True)


def _change(look: Observed, using: str) -> tuple[list[Alarm], list[Alarm]]:
    """Change the rows under their locks; return those that have fired and resolved."""
    with own_transaction(using):
        rows = Alarm.objects.using(using).unresolved().annotate(now=UtcNow()).order_by("pk")
        alarms = list(rows.select_for_update())
        ended = [alarm for alarm in alarms if look.has_ended(alarm)]
        held = [alarm for alarm in alarms if _key(alarm) in look.broken]
        fired = [alarm for alarm in held if _is_ripe(alarm, look.rules[alarm.rule])]
        resolved = [alarm for alarm in ended if alarm.is_firing]
        pending = [alarm.pk for alarm in ended if not alarm.is_firing]
        if pending:
            Alarm.objects.using(using).filter(pk__in=pending).delete()
        _update(fired, using, state=AlarmState.FIRING, fired_at=UtcNow())
        _update(resolved, using, state=AlarmState.RESOLVED, resolved_at=UtcNow(), slot=None)
        _note([alarm for alarm in held if look.is_noted_otherwise(alarm)], look, using)
        _notify(look, fired, held, resolved, using)
    return fired, resolved


def _is_ripe(alarm: Alarm, rule: Rule) -> bool:
    waited: timedelta = alarm.now - alarm.since  # type: ignore[attr-defined]
    return alarm.state == AlarmState.PENDING and waited >= rule.for_time


def _update(alarms: list[Alarm], using: str, **changes: object) -> None:
    if alarms:
        ids = [alarm.pk for alarm in alarms]
        Alarm.objects.using(using).filter(pk__in=ids).update(**changes)


def _note(alarms: list[Alarm], look: Observed, using: str) -> None:
    for alarm in alarms:
        seen = look.alarm(_key(alarm))
        for name in NOTED:
            setattr(alarm, name, getattr(seen, name))
    if alarms:
        Alarm.objects.using(using).bulk_update(alarms, NOTED)


def _notify(
    look: Observed, fired: list[Alarm], held: list[Alarm], resolved: list[Alarm], using: str
) -> None:
    """Write what the channels are to be told, in the transaction that changes the alarms."""
    now_firing = {alarm.pk for alarm in fired}
    to_tell = {
        alarm: _event(alarm, look.rules[alarm.rule], alarm.pk in now_firing) for alarm in held
    }
    told = [alarm for alarm, kind in to_tell.items() if kind]
    ends = [alarm for alarm in resolved if alarm.told_at]
    if not told and not ends:
        return
    channels = list(AlarmChannel.objects.using(using).filter(enabled=True))
    all_rules = {rule.name: rule for rule in rules(using)} if ends else look.rules
    rows = [*_rows(told, to_tell, all_rules, channels)]
    rows += _rows(ends, dict.fromkeys(ends, Event.RESOLVED), all_rules, channels)
    AlarmNotification.objects.using(using).bulk_create(rows)
    _update(told, using, told_at=UtcNow())


def _event(alarm: Alarm, rule: Rule, fires_now: bool) -> Event | None:
    now = alarm.now  # type: ignore[attr-defined]
    if rule.is_muted(now) or not (fires_now or alarm.state == AlarmState.FIRING):
        return None
    if alarm.told_at is None:
        return Event.FIRED
    is_due = rule.remind is not None and now - alarm.told_at >= rule.remind
    return Event.REMINDER if is_due else None


def _rows(
    alarms: Iterable[Alarm],
    events: dict[Alarm, Event | None],
    all_rules: dict[str, Rule],
    channels: list[AlarmChannel],
) -> Iterable[AlarmNotification]:
    for alarm in alarms:
        rule = all_rules.get(alarm.rule)
        for channel in channels_of(rule, channels) if rule else channels:
            yield AlarmNotification(
                alarm_id=alarm.pk, channel_id=channel.pk, event=str(events[alarm])
            )


def _say_fired(alarm: Alarm, using: str) -> None:
    alarm.state = AlarmState.FIRING
    logger.log(
        LEVELS[Severity(alarm.severity)],
        "Alarm fires: %s (rule %s)",
        *("; ".join(filter(None, (summary(alarm), alarm.detail))), alarm.rule),
        extra=event("alarm.fired", **_about(alarm, using)),
    )
    signals.alarm_fired.send_robust(Alarm, alarm=alarm, using=using)


def _say_resolved(alarm: Alarm, using: str) -> None:
    alarm.state = AlarmState.RESOLVED
    logger.info(
        "Alarm is resolved: %s (rule %s)",
        *(alarm, alarm.rule),
        extra=event("alarm.resolved", **_about(alarm, using)),
    )
    signals.alarm_resolved.send_robust(Alarm, alarm=alarm, using=using)


def _about(alarm: Alarm, using: str) -> dict[str, object]:
    return {
        "alarm": alarm.pk,
        "rule": alarm.rule,
        "topic": alarm.topic,
        "group": alarm.group,
        "severity": alarm.severity,
        "value": alarm.value,
        "database": using,
    }


def _key(alarm: Alarm) -> Key:
    return str(alarm.rule), alarm.subject
