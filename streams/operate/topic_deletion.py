"""Deletes a topic once nobody sends to it and nobody waits for its messages.

No message may be lost with it. A send has looked the topic up, at most FRESH_SECONDS ago. If it has
taken longer than SURE_SECONDS since then, it looks again after its INSERT and deletes its message.
So when the topic is closed and both times are over, every message that will ever come is in
ems_msg, if only in a transaction that is still open; and a locking read finds those.

Rows are deleted in small batches. A deletion that was stopped goes on when it is called again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from django.db import OperationalError, connections
from django.db.models import F, Model, QuerySet, Sum
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from streams.conf import FRESH_SECONDS, SURE_SECONDS
from streams.database.batches import delete_all
from streams.database.retrying import error_number, retrying
from streams.database.sql import retain as sql
from streams.database.sql.dialect import fetch
from streams.database.transactions import own_transaction
from streams.errors import TopicInUse, UnknownTopic
from streams.log.lag import lags
from streams.log.topics import forget
from streams.models import (
    Access,
    Consumer,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    DedupKey,
    Delivery,
    HeldKey,
    KeyEntry,
    Message,
    Move,
    Partition,
    PreparedRow,
    Reader,
    RetryMessage,
    Rewind,
    Topic,
)
from streams.operate.group_deletion import delete_group
from streams.retain.purge import Purge
from streams.two_phase.decide import abandon
from streams.two_phase.record import OPERATOR

# Seconds after which a closed topic has every message that will ever come.
SETTLED_SECONDS = FRESH_SECONDS + SURE_SECONDS + 1
# Error numbers of NOWAIT at a locked row: of MySQL, of MariaDB.
LOCKED = {3572, 1205}
# Prepared messages are counted up to this number.
COUNT_AT_MOST = 10_000

Say = Callable[[str, int], None]


def count_inbox(partition: Partition, topic: Topic, using: str) -> int:
    """Count the messages in the inbox; raises TopicInUse if some are not committed."""
    statement = sql.COUNT_INBOX[connections[using].vendor]
    try:
        ((count,),) = fetch(using, statement, [partition.pk])
    except OperationalError as error:
        if error_number(error) not in LOCKED:
            raise
        raise TopicInUse(
            _("A transaction that has sent to %s is still open: end it, and try again.") % topic
        ) from error
    return int(count)


class TopicDeletion:
    """The deletion of one topic."""

    def __init__(self, topic: Topic, using: str, *, force: bool = False) -> None:
        self.topic = topic
        self.using = using
        self.force = force

    def contents(self, at_most: int | None = None) -> dict[str, int]:
        """Return how many rows of each kind would be deleted, each counted up to ``at_most``."""
        counted = self._counted(at_most)
        return {str(model._meta.verbose_name_plural): count for model, count in counted.items()}

    def tables(self, at_most: int) -> dict[str, int]:
        """Return the same by the name of the table."""
        return {model._meta.db_table: count for model, count in self._counted(at_most).items()}

    def obstacles(self) -> list[str]:
        """Return the reasons not to delete the topic, as texts; ``force`` ignores them."""
        return [*self._open(), *self._used()]

    def close(self) -> None:
        """Refuse producers from now on, and with ``force`` consumers too.

        Raises TopicInUse if there are obstacles, unless forced, and UnknownTopic.
        """
        if not self.force and (obstacles := self.obstacles()):
            raise TopicInUse(" ".join(obstacles))
        if self.force:
            rows = Topic.objects.using(self.using).filter(pk=self.topic.pk)
            retrying(lambda: rows.update(access=Access.DENIED), self.using)
            forget()

    def wait(self, pause: Callable[[float], None] = time.sleep) -> None:
        """Wait for SETTLED_SECONDS, until every message that will ever come is there."""
        pause(SETTLED_SECONDS)

    def finish(self, say: Say = lambda name, rows: None) -> None:
        """Delete the topic, once it was closed for SETTLED_SECONDS.

        It may be stopped and repeated. ``say`` is called with each kind of rows, and how many of it
        are deleted so far. Raises TopicInUse, UnknownTopic.
        """
        if self.force:
            self._roll_back_prepared(say)
        partitions = retrying(self._verify, self.using)
        # Messages first, and after first_offset is moved: a later run that goes on sees what is
        # deleted, and what came since.
        for partition in partitions:
            self._empty(partition, say)
        groups = ConsumerGroup.objects.using(self.using).filter(topic=self.topic.pk)
        for group in retrying(list, self.using, groups):
            name = str(ConsumerGroup._meta.verbose_name_plural)
            delete_group(group, partial(say, name), force=self.force)
        for rows in self._by_topic():
            self._delete(rows, say)
        retrying(self._end, self.using)
        forget()

    # -- what is in the way --

    def _open(self) -> Iterator[str]:
        topic = Topic.objects.using(self.using).filter(pk=self.topic.pk).first()
        if topic is None:  # another process has deleted it
            raise UnknownTopic(_("There is no topic %s.") % self.topic)
        if topic.access in (Access.READ_WRITE, Access.WRITE_ONLY):
            yield _("%s is not retired: producers may send to it.") % self.topic

    def _used(self) -> Iterator[str]:
        groups = ConsumerGroup.objects.using(self.using).filter(topic=self.topic.pk)
        for lag in lags(groups.select_related("topic"), self.using):
            if lag.consumers:
                yield _("%s has live consumers: stop them first.") % lag.group
            if lag.unfinished:
                text = ngettext(
                    "%(group)s has not finished %(count)d message.",
                    "%(group)s has not finished %(count)d messages.",
                    lag.unfinished,
                )
                yield text % {"group": lag.group, "count": lag.unfinished}
        if not groups.exists() and (unread := self._kept()):
            text = ngettext(
                "%d message is there, and no group has read it.",
                "%d messages are there, and no group has read them.",
                unread,
            )
            yield text % unread
        inbox = Message.objects.using(self.using).inbox().filter(partition__in=self._partitions())
        if waiting := inbox.count():
            text = ngettext(
                "%d message is in the inbox, delayed ones too.",
                "%d messages are in the inbox, delayed ones too.",
                waiting,
            )
            yield text % waiting
        if prepared := self._prepared()[:COUNT_AT_MOST].count():
            text = ngettext(
                "%d prepared message may still be sent to it.",
                "%d prepared messages may still be sent to it.",
                prepared,
            )
            yield text % prepared

    def _prepared(self) -> QuerySet[PreparedRow]:
        return PreparedRow.objects.using(self.using).unfinished_of(self.topic.name)

    def _roll_back_prepared(self, say: Say) -> None:
        """Roll back what is prepared for this topic: nothing may make the topic again."""
        done = 0
        for biz, biz_key in self._prepared().values_list("biz", "biz_key"):
            abandon(biz, biz_key, by=f"{OPERATOR}deletion of {self.topic.name}", using=self.using)
            done += 1
        if done:
            say(str(PreparedRow._meta.verbose_name_plural), done)

    def _kept(self) -> int:
        rows = Partition.objects.using(self.using).filter(topic=self.topic.pk)
        kept = rows.aggregate(n=Sum(F("next_offset") - F("first_offset")))["n"]
        return int(kept or 0)

    def _verify(self) -> list[Partition]:
        """Check that there are no obstacles and no uncommitted messages; return the partitions."""
        with own_transaction(self.using):
            partitions = self._lock()
            for partition in partitions:
                self._count_inbox(partition)
            obstacles = [*self._open()] if self.force else self.obstacles()
            if obstacles:
                raise TopicInUse(" ".join(obstacles))
            return partitions

    def _lock(self) -> list[Partition]:
        list(Topic.objects.using(self.using).select_for_update().filter(pk=self.topic.pk))
        # With their topic: a later read of it would ask the project's routers.
        rows = Partition.objects.using(self.using).select_related("topic")
        rows = rows.filter(topic=self.topic.pk)
        return list(rows.select_for_update().order_by("number"))

    def _count_inbox(self, partition: Partition) -> int:
        return count_inbox(partition, self.topic, self.using)

    # -- what is deleted --

    def _partitions(self) -> list[int]:
        rows = Partition.objects.using(self.using).filter(topic=self.topic.pk)
        return list(rows.values_list("pk", flat=True))

    def _counted(self, at_most: int | None) -> dict[type[Model], int]:
        return {rows.model: rows.order_by()[:at_most].count() for rows in self._all()}

    def _all(self) -> list[QuerySet[Any]]:
        by_group = (Cursor, HeldKey, RetryMessage, Delivery, Consumer)
        groups = ConsumerGroup.objects.using(self.using).filter(topic=self.topic.pk)
        ids = list(groups.values_list("pk", flat=True))
        messages = Message.objects.using(self.using).filter(partition__in=self._partitions())
        of_groups = [m._default_manager.using(self.using).filter(group__in=ids) for m in by_group]
        partitions = Partition.objects.using(self.using).filter(topic=self.topic.pk)
        keys = KeyEntry.objects.using(self.using).filter(partition__in=self._partitions())
        return [messages, groups, *of_groups, *self._by_topic(), keys, partitions]

    def _by_topic(self) -> list[QuerySet[Any]]:
        models: tuple[Any, ...] = (DeadMessage, DedupKey)
        return [m._default_manager.using(self.using).filter(topic=self.topic.pk) for m in models]

    def _empty(self, partition: Partition, say: Say) -> None:
        """Delete the messages that were there at the check; with ``force``, all that there are."""
        if self.force:
            mine = Message.objects.using(self.using).filter(partition=partition.pk)
            self._delete(mine.inbox(), say, f"`partition_id` = {partition.pk:d}")
        row = Partition.objects.using(self.using).filter(pk=partition.pk)
        end = F("next_offset") if self.force else partition.next_offset
        retrying(lambda: row.update(first_offset=end), self.using)
        with suppress(Partition.DoesNotExist):  # another deletion has ended meanwhile
            Purge(self.using, say=say).delete_below(partition)

    def _delete(self, rows: QuerySet[Any], say: Say, condition: str = "1 = 1") -> None:
        deleted = 0
        for count in delete_all(rows.order_by(), self.using, condition):
            deleted += count
            say(str(rows.model._meta.verbose_name_plural), deleted)

    def _end(self) -> None:
        with own_transaction(self.using):
            partitions = self._lock()
            if not Topic.objects.using(self.using).filter(pk=self.topic.pk).exists():
                return  # by another deletion, or by a try of this one whose reply was lost
            ids = [partition.pk for partition in partitions]
            left = sum(self._count_inbox(partition) for partition in partitions)
            in_log = Message.objects.using(self.using).filter(partition__in=ids)
            groups = ConsumerGroup.objects.using(self.using).filter(topic=self.topic.pk)
            if reopened := [*self._open()]:
                raise TopicInUse(" ".join(reopened))
            if left or in_log.exists() or groups.exists():
                raise TopicInUse(
                    _("Messages or a consumer came to %s meanwhile: try again.") % self.topic
                )
            Rewind.objects.using(self.using).filter(partition__in=ids).delete()
            Reader.objects.using(self.using).filter(topic=self.topic.pk).delete()
            Partition.objects.using(self.using).filter(pk__in=ids).delete()
            # A new topic of this name has not moved.
            moves = Move.objects.using(self.using).filter(name=self.topic.name)
            moves.filter(source=self.using).delete()
            Topic.objects.using(self.using).filter(pk=self.topic.pk).delete()
