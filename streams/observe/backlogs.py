"""Diagnoses backlogs: blocked partitions of ordered groups, and groups beyond a limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from streams.log.foreign import own_rows
from streams.log.lag import lags
from streams.models import ConsumerGroup, Cursor, Delivery
from streams.observe.diagnoses import ERROR, OK, WARNING, Diagnosis


@dataclass(frozen=True)
class Limits:
    """Holds what the operator calls too much: an age, a number of messages; None is no limit."""

    age: timedelta | None = None
    behind: int | None = None


def blocked(using: str) -> Iterator[Diagnosis]:
    """Yield the partitions in which an ordered group waits for a message that has failed."""
    cursors = Cursor.objects.using(using).filter(replay=0, group__ordered=True, attempt__gt=1)
    found = list(
        own_rows(cursors, using).select_related("group__topic", "partition__topic").order_by("pk")
    )
    opened = [cursor.open_delivery for cursor in found if cursor.open_delivery]
    held = Delivery.objects.using(using).in_bulk(opened)
    for cursor in found:
        delivery = held.get(cursor.open_delivery or 0)
        offset = delivery.progress if delivery else cursor.next_offset
        behind = max(0, cursor.partition.next_offset - offset - 1)
        place, group = f"{cursor.partition}@{offset}", cursor.group
        text = ngettext(
            "%(group)s: %(place)s has failed, attempt %(attempt)d is next; %(count)d message waits"
            " behind it",
            "%(group)s: %(place)s has failed, attempt %(attempt)d is next; %(count)d messages wait"
            " behind it",
            behind,
        ) % {"group": group, "place": place, "attempt": cursor.attempt, "count": behind}
        hint = _(
            "ems_messages trace %(place)s shows the error. Correct the handler, or pass the"
            " message: ems_groups reset %(group)s --topic %(topic)s --partition %(number)d"
            " --to %(next)d"
        ) % {
            "place": place,
            "group": group.name,
            "topic": group.topic.name,
            "number": cursor.partition.number,
            "next": offset + 1,
        }
        yield Diagnosis(WARNING, "blocked", text, hint)


def beyond(limits: Limits, using: str) -> Iterator[Diagnosis]:
    """Yield the groups that are further behind than the ``limits``, or one ok if there are none."""
    if limits.age is None and limits.behind is None:
        return
    groups = ConsumerGroup.objects.using(using).select_related("topic").order_by("name")
    within = True
    for lag in lags(groups, using):
        if limits.behind is not None and (lag.behind or 0) > limits.behind:
            within = False
            values = {"group": lag.group, "count": lag.behind, "most": limits.behind}
            text = _("%(group)s is %(count)d messages behind, more than %(most)d") % values
            yield Diagnosis(ERROR, "limit", text)
        if limits.age is not None and lag.age is not None and lag.age > limits.age:
            within = False
            age = timedelta(seconds=int(lag.age.total_seconds()))
            text = _(
                "The oldest unfinished message of %(group)s is %(age)s old, more than %(most)s"
            )
            text %= {"group": lag.group, "age": age, "most": limits.age}
            yield Diagnosis(ERROR, "limit", text)
    if within:
        yield Diagnosis(OK, "limit", _("No group is beyond the limits."))
