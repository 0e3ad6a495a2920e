"""Turns a waiting retry into a dead letter, and redrives dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.db import connections
from django.db.models import Case, F, When

from streams.conf import database
from streams.database.clock import database_now
from streams.database.retrying import retrying
from streams.database.sql import settle as sql
from streams.database.sql.dialect import fetch
from streams.database.transactions import own_transaction
from streams.log.held_keys import GroupPartition, end_head, lock, redriven
from streams.log.places import LogPlace
from streams.models import (
    Again,
    ConsumerGroup,
    DeadMessage,
    Delivery,
    RetryMessage,
    UtcNow,
    Verdict,
)


def give_up(retry: RetryMessage, error: BaseException) -> bool:
    """Turn a waiting retry into a dead letter; return False if it was claimed or changed."""
    using = retry._state.db or database()
    rows = RetryMessage.objects.using(using)
    place = GroupPartition(retry.group_id, retry.partition_id)
    with own_transaction(using):
        key = retry.key_hash
        held = {} if key is None else lock(place, [key], using)
        waiting = rows.filter(pk=retry.pk, delivery=None, attempt=retry.attempt)
        if not waiting.select_for_update(skip_locked=True).exists():
            return False
        verdict = Verdict.of(error, retry.offset, retry.attempt - 1)
        letters = DeadMessage.objects.using(using)
        origin = letters.filter(pk=retry.dead_letter_id or 0)
        buried = (
            origin.edited().reopen(verdict)  # the log does not have what was edited
            or letters.bury(retry.group.topic_id, *place, verdict)
            or origin.reopen(verdict)
        )
        rows.filter(pk=retry.pk).delete()
        for hashed, locked in held.items():
            if locked.head == retry.offset:
                holds = retry.group.hold_dead and bool(buried)
                end_head(place, hashed, locked, using, holds=holds)
        _note_in_the_log(retry, bool(buried))
    return True


def newest(group: ConsumerGroup, count: int, using: str) -> list[int]:
    """Return the ids of the newest letters of the group that wait, at most ``count``."""
    statement = sql.NEWEST_LETTERS[connections[using].vendor]
    return [pk for (pk,) in fetch(using, statement, [group.pk, count])]


def ids_named(names: Iterable[int | LogPlace], using: str) -> list[int]:
    """Return the ids among ``names``, and those of the letters at the places among them."""
    ids = {name for name in names if isinstance(name, int)}
    for place in names:
        partition = place.partition(using) if isinstance(place, LogPlace) else None
        if partition is None or isinstance(place, int):
            continue
        # Index: ems_dead_place, which begins with the group.
        groups = ConsumerGroup.objects.using(using).filter(topic=partition.topic_id)
        there = DeadMessage.objects.using(using).filter(
            group__in=list(groups.values_list("pk", flat=True)),
            partition=partition.pk,
            offset__range=(place.first, place.last),
        )
        ids |= set(there.values_list("pk", flat=True))
    return sorted(ids)


def _note_in_the_log(retry: RetryMessage, buried: bool) -> None:
    """Count the message as dead, or as missing if its body is gone, in its last ended delivery."""
    using = retry._state.db or database()
    claims = Delivery.objects.using(using)
    # Not an open delivery: that is a replay, and its holder may be waiting for the retry row that
    # this transaction has locked.
    last = claims.covering(retry.group_id, retry.partition_id, retry.offset).ended()
    column = "dead" if buried else "missing"
    last.filter(pk__in=list(last.order_by("-id").values_list("pk", flat=True)[:1])).update(
        **{column: F(column) + 1}
    )


def redrive(letter: DeadMessage) -> bool:
    """Give the message to its group again, from the first attempt; False if it was redriven before,
    or while an edited letter of the same message is a retry.

    The group gets the copy of the dead letter: the message itself may have been purged.
    """
    using = letter._state.db or database()
    marks: list[datetime] = []
    return retrying(_redrive, using, letter, marks, using)


def _redrive(letter: DeadMessage, marks: list[datetime], using: str) -> bool:
    """Redrive the letter; ``marks`` are the instants that earlier attempts of this call wrote."""
    row = DeadMessage.objects.using(using).filter(pk=letter.pk)
    with own_transaction(using):
        # EMS locks the retry row last everywhere. Another order here could deadlock.
        if not is_redrivable(letter, using):
            # With a mark it was committed before, and the reply was lost. Nobody else has the same
            # one: the clock is read under the lock of the letter.
            return row.filter(redriven_at__in=marks).exists()
        marks.append(database_now(using))
        row.update(redriven_at=marks[-1])
        hand_over(letter, using)
    return True


def redrive_each(
    ids: Sequence[int], using: str, spacing: timedelta, first: timedelta = timedelta(0)
) -> int:
    """Redrive these letters in the caller's transaction, the first due after ``first``, and each
    other one ``spacing`` after the one before; return how many.

    Those that no longer wait are left out, and all but one of each message: see _redrivable.
    """
    letters = DeadMessage.objects.using(using)
    waiting = letters.waiting().filter(pk__in=ids)
    offsets: dict[tuple[int, int], set[int]] = {}
    for group, partition, offset in waiting.values_list("group", "partition", "offset"):
        offsets.setdefault((group, partition), set()).add(offset)
    places: dict[tuple[int, int], dict[int, int]] = {}
    for (group, partition), wanted in sorted(offsets.items()):
        found = _redrivable(group, partition, wanted, using)
        mine = sorted(set(found).intersection(ids), reverse=True)
        places[group, partition] = {found[pk]: pk for pk in mine}  # the lowest id of each offset
    chosen = sorted(pk for of_place in places.values() for pk in of_place.values())
    letters.filter(pk__in=chosen).update(redriven_at=UtcNow())
    delays = {pk: first + number * spacing for number, pk in enumerate(chosen)}
    retries = RetryMessage.objects.using(using)
    for (group, partition), of_place in places.items():
        keys = redriven(GroupPartition(group, partition), of_place, using)
        again = [
            Again(offset, 1, delays[pk], key_hash=keys.get(offset))
            for offset, pk in sorted(of_place.items())
        ]
        retries.schedule(group, partition, again)
        if again:
            named = Case(*(When(offset=offset, then=pk) for offset, pk in of_place.items()))
            here = retries.filter(group=group, partition=partition, offset__in=list(of_place))
            here.update(dead_letter=named)
    return len(chosen)


def is_redrivable(letter: DeadMessage, using: str) -> bool:
    """Lock the letters of this message; tell whether this one may be redriven."""
    found = _redrivable(letter.group_id, letter.partition_id, [letter.offset], using)
    return letter.pk in found


def _redrivable(group: int, partition: int, offsets: Iterable[int], using: str) -> dict[int, int]:
    """Lock all letters at these offsets; return those that may be redriven: {id: offset}.

    A message has several letters if it died again in a replay. Its retry names one of them. While
    that one is edited, no other may take its place: nothing would hand out the edited copy.
    """
    letters = DeadMessage.objects.using(using).filter(
        group=group, partition=partition, offset__in=sorted(offsets)
    )
    columns = ("pk", "offset", "redriven_at", "edited_at")
    rows = list(letters.select_for_update().values_list(*columns))
    edited = [pk for pk, _offset, redriven, edited in rows if redriven and edited]
    taken: set[int] = set()
    if edited:
        retries = RetryMessage.objects.using(using).filter(
            group=group, partition=partition, offset__in=sorted(offsets), dead_letter__in=edited
        )
        taken.update(retries.values_list("offset", flat=True))
    return {
        pk: offset
        for pk, offset, redriven, _edited in rows
        if redriven is None and offset not in taken
    }


def hand_over(letter: DeadMessage, using: str) -> None:
    """Let the group see the letter's copy of the message, in the transaction that marks it as
    redriven.
    """
    rows = RetryMessage.objects.using(using)
    here = GroupPartition(letter.group_id, letter.partition_id)
    key = redriven(here, [letter.offset], using).get(letter.offset)
    rows.schedule(*here, [Again(letter.offset, 1, key_hash=key)])
    place = {"group": letter.group_id, "partition": letter.partition_id}
    rows.filter(**place, offset=letter.offset).update(dead_letter=letter.pk)
