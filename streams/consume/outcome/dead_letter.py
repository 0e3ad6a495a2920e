"""Turns a waiting retry into a dead letter, and redrives dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from django.db.models import Case, F, When

from streams.conf import database
from streams.database.retrying import retrying
from streams.database.transactions import own_transaction
from streams.models import Again, DeadMessage, Delivery, RetryMessage, UtcNow, Verdict


def give_up(retry: RetryMessage, error: BaseException) -> bool:
    """Turn a waiting retry into a dead letter; return False if it was claimed or changed."""
    using = retry._state.db or database()
    rows = RetryMessage.objects.using(using)
    with own_transaction(using):
        waiting = rows.filter(pk=retry.pk, delivery=None, attempt=retry.attempt)
        if not waiting.select_for_update(skip_locked=True).exists():
            return False
        verdict = Verdict.of(error, retry.offset, retry.attempt - 1)
        letters = DeadMessage.objects.using(using)
        origin = letters.filter(pk=retry.dead_letter_id or 0)
        place = retry.group.topic_id, retry.group_id, retry.partition_id
        buried = (
            origin.edited().reopen(verdict)  # the log does not have what was edited
            or letters.bury(*place, verdict)
            or origin.reopen(verdict)
        )
        rows.filter(pk=retry.pk).delete()
        _note_in_the_log(retry, bool(buried))
    return True


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
    """Give the message to its group again, from the first attempt; False if it was redriven before.

    The group gets the copy of the dead letter: the message itself may have been purged.
    """
    using = letter._state.db or database()
    return retrying(_redrive, using, letter, using)


def _redrive(letter: DeadMessage, using: str) -> bool:
    with own_transaction(using):
        # EMS locks the retry row last everywhere. Another order here could deadlock.
        letters = DeadMessage.objects.using(using).waiting().filter(pk=letter.pk)
        if not letters.update(redriven_at=UtcNow()):
            return False
        hand_over(letter, using)
    return True


def redrive_each(
    ids: Sequence[int], using: str, spacing: timedelta, first: timedelta = timedelta(0)
) -> int:
    """Redrive these letters in the caller's transaction, the first due after ``first``, and each
    other one ``spacing`` after the one before; return how many still waited.
    """
    letters = DeadMessage.objects.using(using)
    waiting = letters.waiting().filter(pk__in=ids).order_by("pk").select_for_update()
    rows = list(waiting.values_list("pk", "group", "partition", "offset"))
    letters.filter(pk__in=[row[0] for row in rows]).update(redriven_at=UtcNow())
    places: dict[tuple[int, int], dict[int, tuple[int, timedelta]]] = {}
    for number, (pk, group, partition, offset) in enumerate(rows):
        places.setdefault((group, partition), {})[offset] = pk, first + number * spacing
    retries = RetryMessage.objects.using(using)
    for (group, partition), of_place in sorted(places.items()):
        again = [Again(offset, 1, delay) for offset, (_pk, delay) in sorted(of_place.items())]
        retries.schedule(group, partition, again)
        named = Case(*(When(offset=offset, then=pk) for offset, (pk, _delay) in of_place.items()))
        here = retries.filter(group=group, partition=partition, offset__in=list(of_place))
        here.update(dead_letter=named)
    return len(rows)


def hand_over(letter: DeadMessage, using: str) -> None:
    """Let the group see the letter's copy of the message, in the transaction that marks it as
    redriven.
    """
    rows = RetryMessage.objects.using(using)
    rows.schedule(letter.group_id, letter.partition_id, [Again(letter.offset, 1)])
    place = {"group": letter.group_id, "partition": letter.partition_id}
    rows.filter(**place, offset=letter.offset).update(dead_letter=letter.pk)
