"""Lets a blocked partition of an ordered group go on: by an attempt now, or past the message.

``preview()`` returns what blocks it; the verbs take the same place and attempt, and refuse if
anything of it has changed.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django.utils.translation import gettext as _

from streams.consume.blocked import Blockade, Blocked, blockades
from streams.consume.outcome import notices
from streams.consume.outcome.failure import SkippedByOperator
from streams.database.clock import database_now
from streams.database.retrying import retrying
from streams.database.transactions import own_transaction, short_lock_waits
from streams.errors import AttemptRunning, NotBlocked, PreviewStale
from streams.log.skips import move_cursor, skips
from streams.models import ConsumerGroup, Cursor, DeadMessage, Partition, Verdict
from streams.wakeup import announce

THREAD = "skip"  # of the deliveries that cover what was skipped
# In seconds: a consumer holds the lock of a cursor only for some statements.
LOCK_SECONDS = 3


class Shown(NamedTuple):
    """What somebody was shown, and has agreed to: a partition by its number, offset, attempt."""

    partition: int
    offset: int
    attempt: int

    @classmethod
    def of(cls, blocked: Blocked) -> Shown:
        return cls(blocked.partition, blocked.offset, blocked.attempt)


def preview(group: ConsumerGroup, using: str, number: int | None = None) -> Blockade:
    """Return what blocks the partition ``number`` of the group, or all of its partitions.

    Raises NotBlocked if nothing does.
    """
    found = retrying(lambda: blockades([group], using, partition=number), using)
    if group.pk not in found:
        place = group if number is None else f"{group}/{number}"
        raise NotBlocked(_("No message blocks %s.") % place)
    return found[group.pk]


def retry_now(group: ConsumerGroup, shown: Shown, using: str) -> None:
    """Let the next attempt at the message that was shown begin at once.

    Raises NotBlocked, AttemptRunning and PreviewStale.
    """
    tried: list[Cursor] = []

    def work() -> None:
        with short_lock_waits(using, LOCK_SECONDS), own_transaction(using):
            try:
                cursor = _lock(group, shown, using)
            except (NotBlocked, AttemptRunning, PreviewStale):
                if tried:
                    return  # it goes on: the reply to an earlier try was lost
                raise
            tried.append(cursor)
            Cursor.objects.using(using).filter(pk=cursor.pk).update(blocked_until=None)

    retrying(work, using)
    announce(using, [group.topic.name])


def skip(group: ConsumerGroup, shown: Shown, using: str, who: str) -> bool:
    """Make a dead letter of the message that was shown, and let the group go on after it.

    ``who`` does it. Returns False if the message is gone from the log: then there is no letter, and
    it counts as missing. Raises NotBlocked, AttemptRunning and PreviewStale.
    """
    tried: dict[datetime, tuple[Verdict, bool]] = {}

    def work() -> tuple[Verdict, bool]:
        with short_lock_waits(using, LOCK_SECONDS), own_transaction(using):
            cursor = _locked(group, shown, using)
            if tried:
                done = skips(group.pk, cursor.partition_id, shown.offset, shown.offset, using)
                times = done.filter(thread=THREAD, claimed_at__in=tried)
                for at in times.values_list("claimed_at", flat=True):
                    return tried[at]  # committed before: only the reply was lost
            _check(cursor, group, shown)
            # Nobody else has the same time for this place: it is read under the lock.
            now = database_now(using)
            name, _colon, text = cursor.last_error.partition(": ")
            verdict = Verdict(shown.offset, cursor.attempt - 1, name, text)
            letters = DeadMessage.objects.using(using)
            is_dead = letters.bury(group.topic_id, group.pk, cursor.partition_id, verdict)
            move_cursor(
                cursor,
                shown.offset,
                shown.offset + 1,
                now,
                using,
                thread=THREAD,
                client_id=who[:190],
                dead=int(is_dead),
                missing=int(not is_dead),
                error=_("skipped to the dead letters"),
            )
            tried[now] = verdict, is_dead
            return verdict, is_dead

    verdict, is_dead = retrying(work, using)
    announce(using, [group.topic.name])
    place = group.topic.name, shown.partition, shown.offset
    attempt = notices.Attempt(*place, group.name, verdict.attempts)
    if is_dead:
        reason = SkippedByOperator(f"{verdict.error_class}: {verdict.error}")
        notices.died(attempt, reason, who, using)
    else:
        notices.missing(attempt, [shown.offset], using)
    return is_dead


def _lock(group: ConsumerGroup, shown: Shown, using: str) -> Cursor:
    """Lock the cursor, and check that it is still as it was shown."""
    cursor = _locked(group, shown, using)
    _check(cursor, group, shown)
    return cursor


def _locked(group: ConsumerGroup, shown: Shown, using: str) -> Cursor:
    rows = Cursor.objects.using(using).filter(group=group.pk, replay=0)
    place = rows.filter(partition__number=shown.partition).values_list("pk", flat=True)
    # By its key alone: a locking join would lock the partition, which the sequencer holds.
    cursor = Cursor.objects.using(using).select_for_update().filter(pk__in=list(place)).first()
    if cursor is None:
        raise NotBlocked(_("No message blocks %s.") % f"{group}/{shown.partition}")
    return cursor


def _check(cursor: Cursor, group: ConsumerGroup, shown: Shown) -> None:
    # Its end is read under the lock: a skip beyond it would pass a message that is yet to come.
    partition = Partition.objects.using(cursor._state.db).get(pk=cursor.partition_id)
    # Set so, the project's database routers are not asked.
    Cursor._meta.get_field("partition").set_cached_value(cursor, partition)
    Cursor._meta.get_field("group").set_cached_value(cursor, group)
    values = {"group": group, "offset": shown.offset, "partition": shown.partition}
    if not cursor.is_blocked:
        text = _("Offset %(offset)d of partition %(partition)d does not block %(group)s any more.")
        raise NotBlocked(text % values)
    if cursor.next_message != shown.offset:
        text = _("Another message blocks partition %(partition)d of %(group)s now: offset %(now)d.")
        raise NotBlocked(text % {**values, "now": cursor.next_message})
    if cursor.open_delivery is not None:
        text = _(
            "A consumer of %(group)s is handling offset %(offset)d of partition %(partition)d just"
            " now: wait for the outcome."
        )
        raise AttemptRunning(text % values)
    if cursor.attempt != shown.attempt:
        text = _(
            "Offset %(offset)d of partition %(partition)d has failed again meanwhile: attempt"
            " %(attempt)d is next. Look again."
        )
        raise PreviewStale(text % {**values, "attempt": cursor.attempt})
