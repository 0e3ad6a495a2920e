"""Purges messages that retention does not keep and no group needs.

First the floor is computed under the lock of the partition, written to first_offset, and committed.
From then on all readers of the log know that nothing is below it. Only then are the messages
deleted, in small batches. A run that is killed at any point leaves messages below first_offset,
which the next run deletes. docs/guides/retention.md says what is kept for whom.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from django.db import OperationalError, connections

from streams import signals
from streams.database import batches
from streams.database.binary_log import bodies_left_out
from streams.database.retrying import held_by_others, retrying
from streams.database.sql import retain as sql
from streams.database.sql.dialect import execute, fetch
from streams.database.transactions import own_transaction
from streams.logs import event
from streams.models import ConsumerGroup, KeyEntry, Message, Partition, Topic
from streams.models.namespaces import own
from streams.retain import old_rows
from streams.retain.forced_purge import Skipped, skip_groups
from streams.retain.purge_floor import UNSKIPPED, Hold, Kept, PurgeFloor, kept_from, purge_floor

logger = logging.getLogger("streams.purge")


@dataclass(frozen=True)
class Purged:
    """What a purge has done, or would do, in one partition."""

    floor: PurgeFloor
    deleted: int = 0
    skipped: Skipped = field(default_factory=Skipped)
    past: tuple[Hold, ...] = ()  # in a preview: the holds that would be skipped


@dataclass
class Purge:
    """One purge. It may be stopped at any point and repeated, and run twice at the same time.

    After ``seconds`` a run stops and is not ``finished``; the next one goes on with the partition
    ids above ``after``. A run with ``seconds`` leaves a partition that stays locked, and has then
    ``failed``. With ``force`` it purges as far as age and count say: groups, deliveries and retries
    are skipped, which skipped deliveries record. ``say`` is called with the name of a partition or
    table, and the number of rows deleted from it so far.
    """

    using: str
    force: bool = False
    seconds: float | None = None
    after: int = 0
    say: Callable[[str, int], None] = lambda name, rows: None
    finished: bool = field(default=True, init=False)
    failed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._ends = None if self.seconds is None else time.monotonic() + self.seconds

    def run(self, topic: Topic | None = None) -> list[Purged]:
        """Purge the messages of one topic, or of all; return the result for each partition."""
        with bodies_left_out(self.using):
            return self._run(topic)

    def _run(self, topic: Topic | None) -> list[Purged]:
        found = []
        for partition in self._partitions(topic):
            try:
                found.append(self._partition(partition))
            except Partition.DoesNotExist:
                logger.info(
                    "%s was deleted before it was purged",
                    partition,
                    extra=event("purge.deleted", **_place(partition)),
                )
            except OperationalError as error:
                if self.seconds is None or not held_by_others(error, self.using):
                    raise
                logger.warning(
                    "%s is not purged, it is locked: %s",
                    *(partition, error),
                    extra=event("purge.locked", **_place(partition)),
                )
                self.failed = True
            if not self.finished:
                break
            if self.seconds is not None:
                self.after = partition.pk
            if self._is_over():
                break
        return found

    def preview(self, topic: Topic | None = None) -> list[Purged]:
        """Return what run() would do with the messages as they are; change nothing."""
        found = []
        for partition in self._partitions(topic):
            with suppress(Partition.DoesNotExist):  # deleted meanwhile
                wanted = kept_from(partition, partition.topic, self.using)
                now = purge_floor(partition, partition.topic, wanted, self.using)
                found.append(self._forced(now, wanted.due) if self.force else Purged(now))
        return found

    def _forced(self, now: PurgeFloor, due: int) -> Purged:
        kept = tuple(hold for hold in now.holds if hold.what in UNSKIPPED)
        new = PurgeFloor(now.partition, due, kept)
        if new.offset <= now.offset:
            return Purged(now)
        past = (hold for hold in now.holds if hold not in kept and hold.offset < new.offset)
        return Purged(new, past=tuple(past))

    def delete_old_rows(self) -> dict[str, int]:
        """Delete old rows beside the messages; return how many, by kind."""
        with bodies_left_out(self.using):
            return self._delete_old_rows()

    def _delete_old_rows(self) -> dict[str, int]:
        steps = old_rows.all_old_rows()
        deleted = dict.fromkeys(steps, 0)
        for name, step in steps.items():
            for rows in step(self.using):
                deleted[name] += rows
                self.say(name, deleted[name])
                if self._is_over():
                    return deleted
        return deleted

    def delete_below(self, partition: Partition) -> int:
        """Delete the messages below first_offset, which is committed; return how many."""
        rows = Partition.objects.using(self.using).filter(pk=partition.pk)
        first = retrying(rows.values_list("first_offset", flat=True).get, self.using)
        self._delete_rows(KeyEntry, partition, first)
        return self._delete_rows(Message, partition, first)

    def _delete_rows(
        self, model: type[Message | KeyEntry], partition: Partition, first: int
    ) -> int:
        """Delete the rows below ``first``, some offsets at a time; return how many."""
        table, vendor = model._meta.db_table, connections[self.using].vendor
        look = sql.PURGED[table][vendor]
        deleted, start, has_holes = 0, 0, True
        while start < first and not self._is_over():
            if has_holes:
                place = [partition.pk, start, first, 1]
                found = retrying(fetch, self.using, self.using, look, place)
                if not found:
                    break
                start = found[0][1]
            end = min(start + batches.BATCH, first)
            count = retrying(self._delete_range, self.using, table, partition.pk, start, end)
            has_holes, start = count < end - start, end
            deleted += count
            if model is Message:
                self.say(str(partition), deleted)
        return deleted

    def _partitions(self, topic: Topic | None) -> list[Partition]:
        rows = Partition.objects.using(self.using).filter(own("topic__name"))
        rows = rows.select_related("topic")
        if topic is not None:
            rows = rows.filter(topic=topic.pk)
        order = ["topic__name", "number"] if self.seconds is None else ["pk"]
        return retrying(list, self.using, rows.filter(pk__gt=self.after).order_by(*order))

    def _partition(self, listed: Partition) -> Purged:
        # As it is now: the run may have begun long ago, and its topic may keep more since.
        rows = Partition.objects.using(self.using).select_related("topic")
        partition = retrying(rows.filter(pk=listed.pk).get, self.using)
        wanted = retrying(kept_from, self.using, partition, partition.topic, self.using)
        raised = retrying(self._raise, self.using, partition, wanted)
        skipped = Skipped()
        if self.force and wanted.due > raised.offset:
            skipped, raised = self._force(partition, wanted)
        return Purged(raised, self.delete_below(partition), skipped)

    def _raise(self, partition: Partition, wanted: Kept) -> PurgeFloor:
        """Write the new first_offset, if it is higher; return the floor, and what holds it."""
        if wanted.wanted <= partition.first_offset:
            return PurgeFloor(partition, wanted.wanted, ())
        with own_transaction(self.using):
            rows = Partition.objects.using(self.using).filter(pk=partition.pk)
            locked = rows.select_for_update().get()
            topic = Topic.objects.using(self.using).get(pk=locked.topic_id)  # no router is asked
            new = purge_floor(locked, topic, wanted, self.using)
            if new.messages:
                rows.update(first_offset=new.offset)
        return new

    def _force(self, partition: Partition, wanted: Kept) -> tuple[Skipped, PurgeFloor]:
        """Skip what groups have not finished below the limit of age and count, as far as possible.

        This is done in small steps, since each one locks the partition.
        """
        total = Skipped()
        while True:
            step = retrying(skip_groups, self.using, partition, wanted.due, self.using)
            total += step
            new = retrying(self._raise, self.using, partition, wanted)
            if not step.rows or self._is_over():
                break
        if total.rows:
            logger.warning(
                "A forced purge of %s: %s",
                *(partition, total),
                extra=event("purge.forced", **_place(partition)),
            )
            told = {**_place(partition), **vars(total), "using": self.using}
            signals.purge_forced.send_robust(ConsumerGroup, **told)
        return total, new

    def _delete_range(self, table: str, partition: int, start: int, end: int) -> int:
        with own_transaction(self.using):
            statement = sql.PURGE[table][connections[self.using].vendor]
            return execute(self.using, statement, [partition, start, end])

    def _is_over(self) -> bool:
        if self._ends is not None and time.monotonic() > self._ends:
            self.finished = False
        return not self.finished


def _place(partition: Partition) -> dict[str, Any]:
    return {"topic": partition.topic.name, "partition": partition.number}
