"""Moves a group to another place in the log.

If it moves back, its messages are delivered again; if it moves forward, those in between are
skipped, which a delivery in state SKIPPED records. All partitions move in one transaction. It locks
the partitions (so no offset is given out or purged), then the cursors, deliveries and retries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import F
from django.db.models.functions import Least
from django.utils.formats import number_format
from django.utils.translation import gettext as _

from streams.consume.outcome.parking import wait_in_order
from streams.database.retrying import retrying
from streams.database.snapshot import snapshot
from streams.database.transactions import own_transaction, short_lock_waits
from streams.errors import (
    GroupActive,
    GroupMismatch,
    NothingToUndo,
    OffsetOutOfRange,
    UnknownPartition,
)
from streams.log.held_keys import GroupPartition
from streams.log.rewinds import left_out
from streams.log.skips import THREAD, move_cursor
from streams.models import (
    Again,
    ConsumerGroup,
    Cursor,
    Delivery,
    Mode,
    Partition,
    RetryMessage,
    UtcNow,
)
from streams.operate.revoke import (
    Raced,
    count_retries,
    fence,
    held_by,
    held_by_letters,
    open_from,
    retry_below,
    revoke_retries,
    revoked,
)
from streams.operate.target import Target
from streams.wakeup import announce

RACES_AT_MOST = 20
# In seconds. A reset waits at most this long for a row that a frozen process may have locked, since
# nothing is sequenced meanwhile.
LOCK_SECONDS = 3

# Takes a cursor and the position of its group, and returns the offset to go to.
Goal = Callable[[Cursor, int], int]
# Takes the moves, under all locks and before anything is written; what it raises ends the reset.
Consent = Callable[[Sequence["CursorMove"]], None]


def towards(target: Target) -> Goal:
    """Return the goal that is the same target in every partition."""
    return lambda cursor, position: target.offset(cursor.partition, position)


@dataclass(frozen=True)
class CursorMove:
    """What a reset does, or in a preview would do, in one partition, in messages."""

    cursor: Cursor  # as it was
    position: int  # the next offset that the group would have seen
    target: int
    fenced: list[Delivery]  # open deliveries that are lost to their holders
    retries: int = 0  # waiting, and given out by the cursor instead
    given_back: int = 0  # messages of the fenced below the target: they become retries
    restored: int = 0  # by undo: revoked by the reset, now retries again

    @property
    def partition(self) -> Partition:
        return self.cursor.partition

    @property
    def again(self) -> int:
        """Return how many messages are delivered again."""
        return self._messages(self.target, self.position)

    @property
    def skipped(self) -> int:
        return self._messages(self.position, self.target)

    def _messages(self, start: int, end: int) -> int:
        if end <= start:
            return 0
        using = self.partition._state.db or "default"
        return end - start - left_out(self.partition, start, end, using)

    def __str__(self) -> str:
        where = _("%(partition)s from %(from)d to %(to)d") % {
            "partition": self.partition,
            "from": self.position,
            "to": self.target,
        }
        return ", ".join([where, *self.effects])

    @property
    def effects(self) -> list[str]:
        """Return what the move does, as texts for people."""
        counted = (
            (self.again, _("%s delivered again")),
            (self.skipped, _("%s skipped")),
            (len(self.fenced), _("open deliveries taken from consumers: %s")),
            (self.retries, _("retries that begin anew: %s")),
            (self.given_back, _("retries of what was in hand: %s")),
            (self.restored, _("retries as before: %s")),
        )
        told = [
            text % number_format(count, force_grouping=True) for count, text in counted if count
        ]
        return told or [_("nothing to do")]

    @property
    def is_nothing(self) -> bool:
        """Tell whether nothing changes: no failure of the next message is forgotten either."""
        cursor = self.cursor
        waits = cursor.blocked_until or cursor.blocked_at or cursor.attempt > 1
        return self.target == self.position and not self.fenced and not waits


class Reset:
    """The reset of a group to ``goal``; None undoes the last reset.

    ``preview()`` and ``run()`` return a move for each partition that has a cursor (or of partition
    ``number`` only). Both raise OffsetOutOfRange, UnknownPartition and NothingToUndo; ``run()``
    also GroupActive, and what ``consent`` raises. With ``force`` it runs although the group has
    live consumers. Raises GroupMismatch for a broadcast group.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        goal: Goal | None,
        using: str,
        *,
        number: int | None = None,
        force: bool = False,
        consent: Consent = lambda moves: None,
    ) -> None:
        if group.mode == Mode.BROADCAST:
            raise GroupMismatch(
                _(
                    "%s is a broadcast group: each of its clients has its position on its own"
                    " disk. Stop the client, and delete that file."
                )
                % group
            )
        self.group = group
        self.using = using
        self._goal = goal
        self._number = number
        self._force = force
        self._consent = consent
        self._tried: dict[datetime, list[CursorMove]] = {}

    def preview(self) -> list[CursorMove]:
        """Return what the reset would do now; change nothing."""

        def look() -> list[CursorMove]:
            with snapshot(self.using):
                return [self._move(cursor, lock=False) for cursor in self._cursors()]

        return retrying(look, self.using)

    def run(self) -> list[CursorMove]:
        """Reset the group, in all partitions or none; return what was done."""
        live = self.group.clients.using(self.using).live()
        if not self._force and retrying(live.exists, self.using):
            raise GroupActive(
                _(
                    "The group %(group)s has live consumers: stop them first. To stop this group"
                    " only, pause it (ems_groups pause %(name)s), wait until nothing of it is open,"
                    " and force the reset (--force)."
                )
                % {"group": self.group, "name": self.group.name}
            )
        for _race in range(RACES_AT_MOST):
            try:
                moves = retrying(self._run, self.using)
            except Raced:
                continue
            announce(self.using)
            return moves
        raise GroupActive(
            _("The consumers of %s claim its retries all the time: stop them, or pause the group.")
            % self.group
        )

    def _run(self) -> list[CursorMove]:
        with short_lock_waits(self.using, LOCK_SECONDS), own_transaction(self.using):
            cursors = self._cursors(lock=True)
            for cursor in cursors:
                if cursor.reset_at in self._tried:
                    return self._tried[cursor.reset_at]  # committed: only the reply was lost
            moves = [self._move(cursor, lock=True) for cursor in cursors]
            self._consent(moves)
            at: datetime = cursors[0].now  # type: ignore[attr-defined]
            done = [self._apply(move, at) for move in moves]
            self._tried[at] = done
            return done

    def _cursors(self, *, lock: bool = False) -> list[Cursor]:
        """Return the cursors that are to move, in the order of their partitions."""
        places = Partition.objects.using(self.using).filter(topic=self.group.topic_id)
        if self._number is not None:
            places = places.filter(number=self._number)
        partitions = list((places.select_for_update() if lock else places).order_by("number"))
        rows = Cursor.objects.using(self.using).filter(group=self.group.pk, replay=0)
        found = {}
        if partitions:
            keys = list(rows.filter(partition__in=partitions).values_list("pk", flat=True))
            # Locked by key, and read as they are now, even if the caller's transaction has an older
            # snapshot.
            rows = Cursor.objects.using(self.using).filter(pk__in=keys).annotate(now=UtcNow())
            rows = rows.order_by("pk")
            found = {c.partition_id: c for c in (rows.select_for_update() if lock else rows)}
        for partition in partitions:
            Partition._meta.get_field("topic").set_cached_value(partition, self.group.topic)
            if cursor := found.get(partition.pk):
                Cursor._meta.get_field("partition").set_cached_value(cursor, partition)
        if not found:
            raise UnknownPartition(_("%s has no such partition.") % self.group)
        cursors = [found[partition.pk] for partition in partitions if partition.pk in found]
        return cursors if self._goal else self._moved_last(cursors)

    def _moved_last(self, cursors: list[Cursor]) -> list[Cursor]:
        """Return the cursors that the last reset has moved."""
        times = [cursor.reset_at for cursor in cursors if cursor.reset_at]
        if not times:
            raise NothingToUndo(_("%s has not been reset.") % self.group)
        return [cursor for cursor in cursors if cursor.reset_at == max(times)]

    def _move(self, cursor: Cursor, *, lock: bool) -> CursorMove:
        held = held_by(cursor, self.using, lock=lock)
        # In an ordered group, the held messages that are not settled are delivered again.
        position = held.progress if held else cursor.next_offset
        goal = self._goal or _back
        target = goal(cursor, position)
        _check(cursor.partition, target)
        fenced = [held] if held else []
        retries = given_back = restored = 0
        if target < position:
            reached = open_from(cursor, target, self.using, lock=lock)
            fenced += [delivery for delivery in reached if delivery.pk != cursor.open_delivery]
            retries = count_retries(cursor, target, self.using)
            given_back = sum(max(0, target - delivery.progress) for delivery in fenced)
        elif self._goal is None and not lock:
            restored = _messages(self._restorable(cursor, position, target))
        return CursorMove(cursor, position, target, fenced, retries, given_back, restored)

    def _apply(self, move: CursorMove, at: datetime) -> CursorMove:
        """Make the move under all the locks; return what was really done."""
        if move.is_nothing:
            return move
        cursor, using = move.cursor, self.using
        fence(move.fenced, at, using)
        if move.target < move.position:
            retry_below(move.fenced, move.target, using)
            move = replace(
                move, retries=revoke_retries(cursor, move.target, move.fenced, at, using)
            )
        elif self._goal is None:
            rows = list(self._restorable(cursor, move.position, move.target))
            place = GroupPartition(cursor.group_id, cursor.partition_id)
            if self.group.by_key:
                dead = held_by_letters(cursor, move.position, move.target, using)
                wait_in_order(place, rows, dead, using)
            else:
                RetryMessage.objects.using(using).schedule(*place, rows)
            move = replace(move, restored=_messages(rows))
        move_cursor(cursor, move.position, move.target, at, using, thread=THREAD)
        # All offsets from the target on will be delivered to the group and covered, so these may
        # not be above it.
        changes: dict[str, Any] = {
            name: Least(F(name), move.target) for name in ("start_offset", "log_offset")
        }
        if move.target != move.position:
            changes |= {"previous_offset": move.position, "reset_at": at}
        Cursor.objects.using(using).filter(pk=cursor.pk).update(**changes)
        return move

    def _restorable(self, cursor: Cursor, start: int, end: int) -> Iterator[Again]:
        now: datetime = cursor.now  # type: ignore[attr-defined]
        return revoked(cursor, start, end, now, self.using)


def _messages(rows: Iterable[Again]) -> int:
    """Count the offsets: one may have been in an open delivery and a retry."""
    return len({row.offset for row in rows})


def _back(cursor: Cursor, position: int) -> int:
    """Return where the group was before the last reset."""
    return position if cursor.previous_offset is None else cursor.previous_offset


def _check(partition: Partition, target: int) -> None:
    if target < partition.first_offset:
        text = _("%(partition)s begins at offset %(first)d: there is no %(target)d any more.")
    elif target > partition.next_offset:
        text = _("%(partition)s ends before offset %(next)d: there is no %(target)d yet.")
    else:
        return
    values = {"first": partition.first_offset, "next": partition.next_offset, "target": target}
    raise OffsetOutOfRange(text % {"partition": partition, **values})
