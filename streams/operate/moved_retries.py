"""Takes waiting retries along when a topic moves, each with its own copy of the message.

The message itself stays in the old log. So a retry arrives with a redriven dead letter, from which
it reads the body. Before that, the retry is held by no delivery that exists: nobody claims it on
the old database, whatever is killed, until it is released or deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.db.models import QuerySet

from streams.log.skips import write_skipped
from streams.models import (
    ConsumerGroup,
    Cursor,
    DeadMessage,
    HeldKey,
    Kind,
    LetterEdit,
    Message,
    RetryMessage,
    UtcNow,
)

# The delivery of a retry that waits to be taken along: ids of deliveries are above 0.
TAKEN_ALONG = -1
# Retries in one statement: each has a body.
CHUNK = 100
# Of the skips that cover what was taken along.
THREAD = "move"
# What the letter of a retry shows as its error class, until it has failed again.
ERROR_CLASS = "streams.errors.Moved"


def waiting(topic_id: int, using: str) -> QuerySet[RetryMessage]:
    return _of_topic(topic_id, using).filter(delivery=None)


def hold(topic_id: int, using: str) -> int:
    """Let nobody claim the waiting retries here; return how many are held."""
    return waiting(topic_id, using).update(delivery=TAKEN_ALONG)


def held(topic_id: int, using: str) -> QuerySet[RetryMessage]:
    return _of_topic(topic_id, using).filter(delivery=TAKEN_ALONG)


def left(topic_id: int, using: str) -> QuerySet[RetryMessage]:
    """Return the retries that are not held: those that wait, and those that are claimed."""
    return _of_topic(topic_id, using).exclude(delivery=TAKEN_ALONG)


def release(topic_id: int, using: str) -> None:
    """Let them be claimed here again."""
    held(topic_id, using).update(delivery=None)


def copy(
    topic_id: int,
    source: str,
    target: str,
    new_topic: int,
    groups: Mapping[int, int],
    partitions: Mapping[int, int],
) -> int:
    """Write the retries that are held to ``target``; return how many.

    ``groups`` and ``partitions`` map ids on the source to those on the target.
    """
    rows = held(topic_id, source).order_by("pk")
    done, last = 0, 0
    while chunk := list(rows.filter(pk__gt=last)[:CHUNK]):
        letters = dict(_letters(chunk, source))
        for retry in chunk:
            letter = letters.get(retry.pk)
            if letter is not None:
                letter.topic_id = new_topic
                letter.group_id = groups[retry.group_id]
                letter.partition_id = partitions[retry.partition_id]
                letter.compress().save(using=target, force_insert=True)
                _copy_edits(retry.dead_letter_id, letter, source, target)
            RetryMessage.objects.using(target).create(
                group_id=groups[retry.group_id],
                partition_id=partitions[retry.partition_id],
                offset=retry.offset,
                attempt=retry.attempt,
                due_at=retry.due_at,
                alone=retry.alone,
                key_hash=retry.key_hash,
                dead_letter_id=letter.pk if letter else None,
                last_error=retry.last_error,
            )
        done, last = done + len(chunk), chunk[-1].pk
    _copy_held_keys(source, target, groups, partitions)
    return done


def _copy_held_keys(
    source: str, target: str, groups: Mapping[int, int], partitions: Mapping[int, int]
) -> None:
    """Let the keys that are held on ``source`` be held on ``target``, where nobody consumes yet."""
    keys = HeldKey.objects.using(source).filter(group__in=list(groups))
    for key in keys.order_by("pk").iterator():
        place = {"group": groups[key.group_id], "partition": partitions[key.partition_id]}
        # A dead letter that stayed there when the topic moved away may hold it still.
        HeldKey.objects.using(target).update_or_create(
            group_id=place["group"],
            partition_id=place["partition"],
            key_hash=key.key_hash,
            defaults={
                "key": key.key,
                "head_offset": key.head_offset,
                "dead": key.dead,
                "held_at": key.held_at,
            },
        )
        Cursor.objects.using(target).filter(**place).update(has_held_keys=True)


def remove(topic_id: int, using: str) -> None:
    """Delete the retries that are held, which are on another database now.

    A skip covers each of their offsets, so that the audit does not take it for lost.
    """
    rows = held(topic_id, using)
    columns = ("group", "partition", "offset")
    ranges: list[tuple[tuple[int, int], range]] = []
    for group, partition, offset in rows.order_by(*columns).values_list(*columns):
        place = (group, partition)
        if ranges and ranges[-1] == (place, range(ranges[-1][1].start, offset)):
            ranges[-1] = (place, range(ranges[-1][1].start, offset + 1))
        else:
            ranges.append((place, range(offset, offset + 1)))
    for place, offsets in ranges:
        write_skipped(place, offsets, Kind.NEW, UtcNow(), using, thread=THREAD)
    groups = set(rows.values_list("group", flat=True))
    HeldKey.objects.using(using).filter(group__in=groups).delete()
    letters = list(rows.exclude(dead_letter=None).values_list("dead_letter", flat=True))
    LetterEdit.objects.using(using).filter(letter__in=letters).delete()
    DeadMessage.objects.using(using).filter(pk__in=letters).delete()
    rows.delete()


def _copy_edits(old: int | None, letter: DeadMessage, source: str, target: str) -> None:
    for edit in LetterEdit.objects.using(source).filter(letter=old or 0).order_by("pk"):
        edit.pk, edit.letter_id, edit.group_id = None, letter.pk, letter.group_id
        edit.compress().save(using=target, force_insert=True)


def _letters(retries: Sequence[RetryMessage], using: str) -> Iterator[tuple[int, DeadMessage]]:
    """Yield the id of each retry and a new letter with what the group would get by it.

    A retry whose message is gone has none: it ends as missing on the new database, too.
    """
    redriven = DeadMessage.objects.using(using).in_bulk(
        [retry.dead_letter_id for retry in retries if retry.dead_letter_id]
    )
    for retry in retries:
        old = redriven.get(retry.dead_letter_id or 0)
        log = Message.objects.using(using).filter(partition=retry.partition_id)
        message = old or log.filter(offset=retry.offset).first()
        if message is None:
            continue
        values: dict[str, Any] = {
            name: getattr(message, name)
            for name in ("body", "body_type", "size", "key", "tag", "headers", "producer")
        }
        yield (
            retry.pk,
            DeadMessage(
                offset=retry.offset,
                message_id=old.message_id if old else message.pk,
                sent_at=old.sent_at if old else message.created_at,  # type: ignore[union-attr]
                attempts=retry.attempt - 1,
                error_class=old.error_class if old else ERROR_CLASS,
                error=retry.last_error,
                redriven_at=UtcNow(),
                edited_at=old.edited_at if old else None,
                **values,
            ),
        )


def _of_topic(topic_id: int, using: str) -> QuerySet[RetryMessage]:
    groups = ConsumerGroup.objects.using(using).filter(topic=topic_id)
    return RetryMessage.objects.using(using).filter(
        group__in=list(groups.values_list("pk", flat=True))
    )
