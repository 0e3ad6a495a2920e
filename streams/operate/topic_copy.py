"""Writes a topic that moves into its new database, in the open transaction there.

Offsets go on where those of the old log end, so each partition begins empty, at that offset. The
groups have all their settings, and their cursors are at that offset. Messages, deliveries and dead
letters stay in the old database.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.db import models
from django.db.models import Q

from streams.errors import MoveRefused, TopicInUse
from streams.models import (
    Access,
    ConsumerGroup,
    Cursor,
    DedupKey,
    Delivery,
    Message,
    Mode,
    Move,
    Partition,
    PreparedRow,
    PreparedState,
    RetryMessage,
    Rewind,
    Topic,
    UtcNow,
)
from streams.models.prepared import UNFINISHED
from streams.operate import moved_retries
from streams.operate.topic_deletion import count_inbox
from streams.plural import plural

# Rows in one statement.
CHUNK = 1000
FINISHED = (PreparedState.SENT, PreparedState.ROLLED_BACK)
# A topic that takes no messages.
CLOSED = (Access.READ_ONLY, Access.DENIED)
# Of a message that keeps the ids of the new database above those of the old one.
NOBODY = "ems_topics move"


class TopicCopy:
    """The copy of one topic of ``source`` on ``target``.

    There may be a topic of that name: one that a process has made too early, or one that has moved
    away and is purged. It is taken over if it holds nothing.
    """

    def __init__(self, topic: Topic, source: str, target: str) -> None:
        self._topic = topic
        self._source = source
        self._target = target

    def obstacles(self) -> Iterator[str]:
        """Yield the reasons why the topic that is on the target cannot be taken over, as texts."""
        topic = self._there().first()
        if topic is None:
            return
        there = self._target
        away = Move.objects.using(self._target).filter(source=self._target, finished_at=None)
        if topic.access in CLOSED and away.filter(name=topic.name).exists():
            yield f"{topic} is being moved away from {there}."
        partitions = list(Partition.objects.using(self._target).filter(topic=topic.pk))
        ids = [partition.pk for partition in partitions]
        messages = Message.objects.using(self._target).filter(partition__in=ids)
        if count := messages[:CHUNK].count():
            yield (
                f"{there} has {plural(count, 'message', 'messages')} of {topic}: let its groups"
                " finish there, and delete that log by"
                f" “ems_topics delete {topic} --database {there}”."
            )
        ends = dict(self._partitions().values_list("number", "next_offset"))
        for partition in partitions:
            if partition.next_offset > ends.get(partition.number, -1):
                yield f"{topic}/{partition.number} has come further on {there} than here."
        yield from self._other_groups(topic)
        prepared = PreparedRow.objects.using(self._target)
        if self._busy(topic) or prepared.filter(topic=topic.name, state__in=UNFINISHED).exists():
            yield f"{topic} has work that is not finished on {there}."

    def write(self, source: Topic, move: Move) -> None:
        """Write the topic with what goes on there, and open it.

        The caller has locked the topic, whose row is ``source``, and its partitions. Retries that
        are held come along. Raises MoveRefused if the topic that is on the target cannot be taken
        over.
        """
        topic = self._lock()
        if obstacles := list(self.obstacles()):
            raise MoveRefused(" ".join(obstacles))
        topic_id, partitions = self._write_topic(source, topic, move)
        groups = self._write_groups(topic_id, partitions)
        self._write_rewinds(partitions)
        self._write_dedup_keys(topic_id)
        self._write_prepared()
        self._keep_ids_apart(partitions)
        moved_retries.copy(  # also those that a run before this one has held
            self._topic.pk,
            *(self._source, self._target, topic_id),
            groups,
            {old: new.pk for old, new in partitions.items()},
        )
        values = {**_columns(move), "finished_at": UtcNow()}
        Move.objects.using(self._target).create(**values)

    # -- what is there --

    def _there(self) -> models.QuerySet[Topic]:
        return Topic.objects.using(self._target).filter(name=self._topic.name)

    def _partitions(self) -> models.QuerySet[Partition]:
        return Partition.objects.using(self._source).filter(topic=self._topic.pk).order_by("number")

    def _groups(self, topic_id: int, using: str) -> models.QuerySet[ConsumerGroup]:
        return ConsumerGroup.objects.using(using).filter(topic=topic_id)

    def _other_groups(self, topic: Topic) -> Iterator[str]:
        here = {group.name: group for group in self._groups(self._topic.pk, self._source)}
        left = Move.last_of(topic.name, self._target)
        has_left = left is not None and left.source == self._target
        there = self._target
        for group in self._groups(topic.pk, there):
            name = group.name
            mine = here.get(name)
            if mine is None and has_left:  # it was deleted after the topic had moved away
                yield (
                    f"The group {name} is on {there} only:"
                    f" “ems_groups delete {name} --topic {topic} --database {there}”."
                )
            if mine and mine.kind != group.kind:
                yield (
                    f"The group {name} is {group.kind} on {there} and {mine.kind} here: delete it"
                    " there."
                )

    def _busy(self, topic: Topic) -> bool:
        groups = list(self._groups(topic.pk, self._target).values_list("pk", flat=True))
        of_groups = Q(group__in=groups)
        return (
            Delivery.objects.using(self._target).open().filter(of_groups).exists()
            or RetryMessage.objects.using(self._target).filter(of_groups).exists()
            or Cursor.objects.using(self._target).unended().filter(of_groups).exists()
        )

    def _lock(self) -> Topic | None:
        topic = self._there().select_for_update().first()
        if topic is not None:
            rows = Partition.objects.using(self._target).filter(topic=topic.pk)
            for partition in rows.select_for_update().order_by("number"):
                try:
                    count_inbox(partition, topic, self._target)
                except TopicInUse as error:  # a process has the new routes already
                    raise MoveRefused(f"{self._target}: {error}") from error
        return topic

    # -- what is written --

    def _write_topic(
        self, source: Topic, topic: Topic | None, move: Move
    ) -> tuple[int, dict[int, Partition]]:
        """Write the topic and its partitions; return its id, and {id on the source: partition}."""
        values = {**_columns(source), "access": move.access}
        if topic is None:
            topic = Topic(**values)
            topic.save(using=self._target)  # with its first partition
        else:
            self._there().update(**values)
        rows = Partition.objects.using(self._target)
        there = {row.number: row for row in rows.filter(topic=topic.pk)}
        new: list[Partition] = []
        found: dict[int, Partition] = {}
        for old in self._partitions():
            end = old.next_offset
            kept = {"first_offset": end, "archived_offset": end, "keys_from": None, "server": ""}
            columns = {**_columns(old, "topic"), **kept}
            if row := there.get(old.number):
                rows.filter(pk=row.pk).update(**columns)
                row.next_offset = end
            else:
                row = Partition(topic_id=topic.pk, **columns)
                new.append(row)
            found[old.pk] = row
        rows.bulk_create(new, batch_size=CHUNK)
        if any(row.pk is None for row in new):  # MySQL gives no ids
            ids = dict(rows.filter(topic=topic.pk).values_list("number", "pk"))
            for row in new:
                row.pk = ids[row.number]
        return topic.pk, found

    def _write_groups(self, topic_id: int, partitions: dict[int, Partition]) -> dict[int, int]:
        """Write the groups and their cursors; return {id on the source: id on the target}."""
        found = {}
        for group in self._groups(self._topic.pk, self._source):
            row, _created = ConsumerGroup.objects.using(self._target).update_or_create(
                topic_id=topic_id, name=group.name, defaults=_columns(group, "topic", "name")
            )
            found[group.pk] = row.pk
        # A group that is only on the target gets them, too: there is nothing below them to read.
        readers = self._groups(topic_id, self._target).filter(mode=Mode.CLUSTER)
        cursors = Cursor.objects.using(self._target).filter(replay=0)
        for partition in partitions.values():
            end = partition.next_offset
            place = {"next_offset": end, "start_offset": end, "log_offset": end}
            here = cursors.filter(partition=partition.pk)
            here.update(**place, previous_offset=None, reset_at=None)
            known = set(here.values_list("group", flat=True))
            Cursor.objects.using(self._target).bulk_create(
                Cursor(group_id=pk, partition_id=partition.pk, **place)
                for pk in readers.values_list("pk", flat=True)
                if pk not in known
            )
        return found

    def _write_rewinds(self, partitions: dict[int, Partition]) -> None:
        for rewind in Rewind.objects.using(self._source).filter(partition__in=list(partitions)):
            Rewind.objects.using(self._target).get_or_create(
                partition_id=partitions[rewind.partition_id].pk,
                epoch=rewind.epoch,
                defaults=_columns(rewind, "partition", "epoch"),
            )

    def _write_dedup_keys(self, topic_id: int) -> None:
        """Write the keys whose windows have not ended, each with the message that has taken it."""
        DedupKey.objects.using(self._target).filter(topic=topic_id).delete()
        rows = DedupKey.objects.using(self._source).filter(topic=self._topic.pk)
        taken = rows.exclude(message_id=None).filter(expires_at__gt=UtcNow())
        last = b""
        while chunk := list(taken.filter(key_hash__gt=last).order_by("key_hash")[:CHUNK]):
            DedupKey.objects.using(self._target).bulk_create(
                DedupKey(topic_id=topic_id, **_columns(row, "topic")) for row in chunk
            )
            last = bytes(chunk[-1].key_hash)

    def _write_prepared(self) -> None:
        """Write what was prepared and is decided: who repeats prepare() or commit() finds it."""
        rows = PreparedRow.objects.using(self._source).filter(topic=self._topic.name)
        for state in FINISHED:
            last = 0
            decided = rows.filter(state=state).order_by("pk")
            while chunk := list(decided.filter(pk__gt=last)[:CHUNK]):
                copies = [PreparedRow(**_columns(row)).compress() for row in chunk]
                PreparedRow.objects.using(self._target).bulk_create(copies, ignore_conflicts=True)
                last = chunk[-1].pk

    def _keep_ids_apart(self, partitions: dict[int, Partition]) -> None:
        """Let messages on the target have ids above those of this topic on the source.

        So an id that somebody has kept, for a cancel() or in a dedup key, names no other message.
        """
        if not partitions:
            return
        old_id, partition = next(iter(partitions.items()))
        highest = self._probe(self._source, old_id)
        if not Message.objects.using(self._target).filter(pk__gte=highest).exists():
            self._probe(self._target, partition.pk, highest)

    def _probe(self, using: str, partition_id: int, pk: int | None = None) -> int:
        """Write a message and delete it again, unseen; return the id that it had."""
        probe = Message(
            pk=pk,
            partition_id=partition_id,
            body=b"",
            body_type="bytes",
            size=0,
            producer=NOBODY,
        )
        probe.save(using=using, force_insert=True)
        given = int(probe.pk)
        Message.objects.using(using).filter(pk=given).delete()
        return given


def _columns(row: models.Model, *but: str) -> dict[str, Any]:
    """Return the columns of a row, without its id and without ``but``."""
    fields: Sequence[Any] = row._meta.concrete_fields
    return {
        field.attname: getattr(row, field.attname)
        for field in fields
        if not field.primary_key and field.name not in but
    }
