"""Measures groups: how far behind they are, who serves them, and what they gave up on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from django.db import connections
from django.db.models import Count, Exists, F, Min, OuterRef, Q, Subquery, Sum
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from monitoring.alarms import sql
from monitoring.alarms.measured import Subject, Value, Values
from streams.database.sql.dialect import fetch, later
from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    Delivery,
    Kind,
    Message,
    Mode,
    RetryMessage,
    UtcNow,
)
from streams.models.cursor import CursorQuerySet

# How far back expired calls and dead letters are counted.
RECENTLY = timedelta(minutes=5)
# The most dead letters and failed deliveries that one measurement reads.
AT_MOST = 5000
# The most groups that are asked one by one, in one statement, for what those did not show.
ASKED = 50


def names(using: str) -> dict[int, Subject]:
    """Return the groups of this namespace by their ids."""
    rows = ConsumerGroup.objects.using(using).values_list("pk", "topic__name", "name")
    return {pk: Subject(topic, group) for pk, topic, group in rows}


def lag(using: str) -> Values:
    """Return how many messages each group has not claimed."""
    rows = _cursors(using).order_by().values_list("group")
    behind = rows.annotate(n=Sum(F("partition__next_offset") - F("next_offset")))
    groups = names(using)
    return {groups[pk]: Value(float(n)) for pk, n in behind if pk in groups}


def lag_age(using: str) -> Values:
    """Return the seconds since the oldest message that each group has not claimed was sequenced.

    Retries do not count: they wait on purpose.
    """
    first = Message.objects.using(using).filter(
        partition=OuterRef("partition"), offset=OuterRef("next_offset")
    )
    rows = (
        _cursors(using).behind().annotate(at=Subquery(first.values("sequenced_at")), now=UtcNow())
    )
    ages = [(group, now, at) for group, now, at in rows.values_list("group", "now", "at")]
    given_back = Delivery.objects.using(using).given_back().exclude(kind=Kind.REPLAY)
    first = Message.objects.using(using).filter(
        partition=OuterRef("partition"), offset=OuterRef("progress")
    )
    rest = given_back.annotate(at=Subquery(first.values("sequenced_at")), now=UtcNow())
    ages += list(rest.values_list("group", "now", "at"))
    groups = names(using) if ages else {}
    found: dict[Subject, Value] = {}
    for pk, now, at in ages:
        if pk not in groups:
            continue
        # Without its message the age is unknown, unless that of another partition is known.
        age = None if at is None else (now - at).total_seconds()
        before = found.get(groups[pk], Value(None)).number
        known = [number for number in (age, before) if number is not None]
        found[groups[pk]] = Value(max(known, default=None))
    return found


def blocked(using: str) -> Values:
    """Return the seconds since the first failure of what blocks each ordered group the longest."""
    by_group = Cursor.objects.using(using).blocked().order_by().values("group")
    rows = by_group.annotate(n=Count("pk"), at=Min("blocked_at"), now=UtcNow())
    found = list(rows.values_list("group", "n", "at", "now"))
    groups = names(using) if found else {}
    return {
        groups[pk]: Value(
            None if at is None else (now - at).total_seconds(),
            ngettext("%d partition is blocked", "%d partitions are blocked", n) % n,
        )
        for pk, n, at, now in found
        if pk in groups
    }


def no_consumer(using: str) -> Values:
    """Return how many messages wait for each group that no live client serves.

    Messages that a retry makes wait count as one: their number is not needed to know of them.
    """
    live = Consumer.objects.using(using).live().filter(group=OuterRef("pk"))
    waits = Delivery.objects.using(using).given_back().filter(group=OuterRef("pk"))
    retries = RetryMessage.objects.using(using).filter(group=OuterRef("pk"), delivery=None)
    unserved = (
        ConsumerGroup.objects.using(using)
        .filter(~Exists(live), paused=False)
        .exclude(mode=Mode.BROADCAST)
        .annotate(
            behind=Sum(
                F("cursors__partition__next_offset") - F("cursors__next_offset"),
                filter=Q(cursors__replay=0),
            ),
            others=Exists(waits) | Exists(retries),
        )
    )
    rows = unserved.values_list("topic__name", "name", "behind", "others")
    return {
        Subject(topic, group): Value(float((behind or 0) or others))
        for topic, group, behind, others in rows
    }


def dead_new(using: str) -> Values:
    """Return how many dead letters each group has written lately, with the commonest error.

    Where many are new, the groups that the newest AT_MOST do not show are asked for one letter
    each; those beyond ASKED are unknown.
    """
    vendor = connections[using].vendor
    since = later(vendor, -RECENTLY)
    rows = list(fetch(using, sql.NEW_DEAD_LETTERS[vendor], [since, AT_MOST]))
    groups = names(using) if rows else {}
    hidden: list[int] = []
    if sum(int(n) for _group, _error, n in rows) >= AT_MOST:
        hidden = sorted(groups.keys() - {group for group, _error, _n in rows})
    if asked := hidden[:ASKED]:
        statement = " UNION ALL ".join([sql.NEWEST_LETTER[vendor]] * len(asked))
        rows += fetch(using, statement, [value for group in asked for value in (group, since)])
    unknown = {groups[group]: Value(None) for group in hidden[ASKED:]}
    return {**_counted(groups, rows), **unknown}


def expired(using: str) -> Values:
    """Return how many calls of each group have ended by timeout or death lately."""
    vendor = connections[using].vendor
    recently = later(vendor, -RECENTLY)
    # A delivery expires after its deadline, or before it with its client.
    since = later(vendor, -2 * RECENTLY)
    rows = fetch(using, sql.EXPIRED[vendor], [since, *[AT_MOST] * 3, recently])
    about = Delivery.objects.using(using).in_bulk({last for _group, _n, last in rows})
    groups = names(using) if rows else {}
    return {
        groups[group]: Value(float(n), _call(about[last]) if last in about else "")
        for group, n, last in rows
        if group in groups
    }


def _cursors(using: str) -> CursorQuerySet:
    return Cursor.objects.using(using).filter(replay=0).exclude(group__mode=Mode.BROADCAST)


def _counted(groups: dict[int, Subject], rows: Sequence[tuple[int, str, int]]) -> Values:
    counts: dict[int, dict[str, int]] = {}
    for group, error, n in rows:
        counts.setdefault(group, {})[error] = int(n)
    return {
        groups[group]: Value(float(sum(errors.values())), max(errors, key=errors.__getitem__))
        for group, errors in counts.items()
        if group in groups
    }


def _call(delivery: Delivery) -> str:
    text = _("the last one: offsets %(first)d–%(last)d, client %(client)s, thread %(thread)s")
    return text % {
        "first": delivery.first_offset,
        "last": delivery.last_offset,
        "client": delivery.client_id,
        "thread": delivery.thread,
    }
