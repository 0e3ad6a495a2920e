"""Gives committed messages their offsets, so that the inbox becomes a log.

An offset is given after the commit, never at the INSERT. A cursor over a table would pass rows
that are committed late; the inbox, which the sequencer empties, loses none
(docs/about/architecture.md).
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import DataError, IntegrityError, InterfaceError, OperationalError, connections

from streams.conf import settings
from streams.database.retrying import connection_lost, held_by_others, retrying
from streams.database.server import seconds_on, server
from streams.database.sql import sequence as sql
from streams.database.sql.dialect import execute, fetch
from streams.database.transactions import own_transaction
from streams.log.ends import End
from streams.log.rewinds import is_rewound, jump_if_rewound, note
from streams.logs import event
from streams.models import Partition
from streams.telemetry import SEQUENCE, observed

logger = logging.getLogger("streams.sequencer")

# The most messages of one pass: immediate and delayed ones have separate quotas, so that neither
# keeps the other waiting.
IMMEDIATE_PER_PASS = 10_000
DUE_PER_PASS = 1_000
CHUNK = 500
CANCELLED_AT_MOST = 10
# A pass is repeated after deadlocks for at most this many seconds, and one wait for a lock is as
# long.
LOCKED_SECONDS = 2.0
# Seconds until the next look after a failover, while no offset may be given yet.
UNSETTLED_SECONDS = 0.1
# And after another process held a partition.
BUSY_SECONDS = 0.01
# Seconds until a damaged partition is tried again: each try reads its inbox and is rolled back.
DAMAGED_SECONDS = 30.0
# What the server says when next_offset is lower than an offset in the table, or out of range.
DAMAGES = (IntegrityError, DataError)

# When this process tries a damaged partition again: (alias, partition) → time.monotonic().
_damaged: dict[tuple[str, int], float] = {}
# The last server announced after a failover, by alias.
_told: dict[str, str] = {}


class PassCancelled(Exception):
    """A message left the inbox between the read and the update."""


class Rewound(PassCancelled):
    """This process knows a higher end of the log: first the log must jump beyond it."""


class Unsettled(PassCancelled):
    """A failover was moments ago: other processes may know a higher end of the log."""


@dataclass(frozen=True)
class Pass:
    """What one pass over the partitions did."""

    sequenced: int = 0
    busy: bool = False  # another process holds a partition
    more: bool = False  # a quota was used up
    unsettled: bool = False  # busy, since a failover was moments ago: look again later
    partitions: frozenset[int] = field(default=frozenset(), compare=False)  # that have grown

    @property
    def goes_on_in(self) -> float | None:
        """Return in how many seconds the next pass has something to do; None: nobody knows."""
        if self.more:
            return 0.0
        if self.unsettled:
            return UNSETTLED_SECONDS
        return BUSY_SECONDS if self.busy else None


@observed(SEQUENCE)
def sequence(
    using: str, partitions: Iterable[int] | None = None, *, until: float = math.inf
) -> Pass:
    """Make one pass over ``partitions``, or over all that have something due in their inbox.

    The pass ends at ``until``, an instant of time.monotonic(), after the chunk that it writes then,
    or after its first one; what it has sequenced is committed. The order of the partitions is
    random, so that none is left out each time.

    Any number of processes may call this at any time. A pass with nothing to do costs two short
    statements. A damaged partition is left out, and tried again after DAMAGED_SECONDS.
    """
    total = Pass()
    if partitions is None:
        partitions = partitions_with_inbox(using)
    places = list(partitions)
    random.shuffle(places)
    for number, partition_id in enumerate(places):
        if number and time.monotonic() >= until:
            return replace(total, more=True)
        done = _sequence_or_leave(partition_id, using, until)
        total = Pass(
            total.sequenced + done.sequenced,
            total.busy or done.busy,
            total.more or done.more,
            total.unsettled or done.unsettled,
            total.partitions | ({partition_id} if done.sequenced else set()),
        )
    return total


def partitions_with_inbox(using: str) -> list[int]:
    """Return the ids of the partitions that have something due in their inbox."""
    return retrying(_partitions, using, using)


def _partitions(using: str) -> list[int]:
    ids = [row[0] for row in fetch(using, sql.PARTITIONS)]
    if not ids:
        return []
    statement = sql.partitions_with_inbox(connections[using].vendor, ids)
    return [partition_id for partition_id, _due_at in fetch(using, statement)]


def _sequence_or_leave(partition_id: int, using: str, until: float) -> Pass:
    """Sequence a partition; leave it if its inbox is locked or it is damaged: others go on."""
    damaged = _damaged.get((using, partition_id))
    if damaged and time.monotonic() < damaged:
        return Pass()
    try:
        done = retrying(_sequence, using, partition_id, using, until, patience=LOCKED_SECONDS)
    except DAMAGES as error:
        _damaged[using, partition_id] = time.monotonic() + DAMAGED_SECONDS
        logger.error(
            "%s cannot be sequenced, its messages wait: %s. ems_doctor says how to repair it; the"
            " next try is in %d s",
            *(_named(partition_id, using), error, DAMAGED_SECONDS),
            extra=event("sequencer.damaged", partition_id=partition_id, database=using),
        )
        return Pass()
    except OperationalError as error:
        if not held_by_others(error, using):
            raise
        logger.warning(
            "Partition %d is not sequenced, it is locked: %s",
            *(partition_id, error),
            extra=event("sequencer.locked", partition_id=partition_id, database=using),
        )
        return Pass(busy=True)
    if damaged:
        _damaged.pop((using, partition_id), None)
        logger.warning(
            "%s is sequenced again",
            _named(partition_id, using),
            extra=event("sequencer.repaired", partition_id=partition_id, database=using),
        )
    return done


def _named(partition_id: int, using: str) -> str:
    found = Partition.objects.using(using).select_related("topic").filter(pk=partition_id).first()
    return str(found or partition_id)


def _sequence(partition_id: int, using: str, until: float) -> Pass:
    for _ in range(CANCELLED_AT_MOST):
        try:
            with own_transaction(using):
                return sequence_locked(partition_id, using, until)
        except Unsettled:
            _say_unsettled(using)
            return Pass(busy=True, unsettled=True)
        except Rewound:
            if not jump_if_rewound(partition_id, using):
                break
        except PassCancelled:
            continue
    return Pass(busy=True)  # end the transaction, so that others go on, and look again later


@observed(SEQUENCE)
def sequence_sent(using: str, partition_id: int, then: Callable[[], None]) -> Pass:
    """Make one pass over what was sent to a partition at once; call ``then`` in its transaction.

    That is if it has sequenced something, at most one CHUNK. Nothing is tried again, and delayed
    messages are left out: a Pass that is busy or has more says that ``sequence()`` is to follow.
    """
    try:
        if (using, partition_id) not in _damaged:
            with own_transaction(using):
                done = sequence_locked(partition_id, using, -math.inf, delayed=False)
                if done.sequenced:
                    then()
            return done
    except (PassCancelled, OperationalError, InterfaceError, *DAMAGES) as error:
        if connection_lost(error):
            connections[using].close()
    return Pass(busy=True)


def _say_unsettled(using: str) -> None:
    """Say once that this process has come to another server."""
    here = server(using)
    if _told.get(using) != here:
        _told[using] = here
        logger.warning(
            "%s is on another server than before, %s: no offset is given for %.1f s, so that every"
            " process can say how far the logs had come",
            *(using, here, settle_seconds()),
            extra=event("sequencer.unsettled", database=using, server=here),
        )


def sequence_locked(
    partition_id: int, using: str, until: float = math.inf, *, delayed: bool = True
) -> Pass:
    """Make a pass over one partition in the open transaction, which is one of EMS's own.

    It ends after the chunk that it writes at ``until``, an instant of time.monotonic(). It leaves
    out messages that were sent for later, unless ``delayed``. Raises PassCancelled: then the
    transaction must be rolled back, or there would be a hole. It is Rewound or Unsettled if no
    offset may be given yet.
    """
    vendor = connections[using].vendor
    here = server(using)
    partition = fetch(using, sql.LOCK_PARTITION[vendor], [partition_id])
    if not partition:
        return Pass(busy=True)
    ((next_offset, now, keys_from, indexes_keys, epoch, there),) = partition
    if is_rewound(partition_id, next_offset, using):
        raise Rewound
    if here and there not in ("", here) and seconds_on(here, using) < settle_seconds():
        raise Unsettled
    due = _lock_due(partition_id, using) if delayed else []
    immediate = fetch(using, sql.IMMEDIATE_INBOX[vendor], [partition_id, IMMEDIATE_PER_PASS])
    ids = [id_ for (id_,) in (*due, *immediate)]
    done = 0
    while done < len(ids) and (not done or time.monotonic() < until):
        chunk = ids[done : done + CHUNK]
        statement = sql.assign_offsets(vendor, chunk, next_offset + done)
        if execute(using, statement, [now]) != len(chunk):
            raise PassCancelled
        if indexes_keys:
            execute(using, sql.index_keys(vendor, chunk))
        done += len(chunk)
    if ids:
        if not indexes_keys:
            keys_from = None
        elif keys_from is None:
            keys_from = next_offset
        values = [next_offset + done, now, keys_from, here, partition_id]
        execute(using, sql.ADVANCE_PARTITION, values)
    note({partition_id: End(next_offset + done, epoch)}, using)
    full = len(due) == DUE_PER_PASS or len(immediate) == IMMEDIATE_PER_PASS
    return Pass(done, more=full or done < len(ids))


def _lock_due(partition_id: int, using: str) -> list[Any]:
    vendor, place = connections[using].vendor, [partition_id, DUE_PER_PASS]
    found = fetch(using, sql.DUE_INBOX[vendor], place)
    if not found:
        return []
    locked = {*fetch(using, sql.lock_due(vendor, [id_ for (id_,) in found]))}
    if len(locked) < len(found) == DUE_PER_PASS:
        return fetch(using, sql.LOCK_DUE_INBOX[vendor], place)
    return [row for row in found if row in locked]


def settle_seconds() -> float:
    """Return for how many seconds no offset is given after a failover.

    In this time every other process that lives looks at all logs, and lets those jump that end
    lower than it knows.
    """
    return 1.0 + 2.0 * settings().POLL_SECONDS
