"""Creates, grows and retires topics; operate/topic_deletion.py deletes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count, islice

from django.db import IntegrityError
from django.utils.translation import gettext as _

from streams.conf import longest_name
from streams.database.elsewhere import elsewhere
from streams.database.retrying import retrying
from streams.database.transactions import can_commit_apart, own_transaction
from streams.errors import InvalidPartitions, TopicExists, UnknownTopic
from streams.log.topics import announce_topic, forget
from streams.models import Access, ConsumerGroup, Cursor, Mode, Partition, Topic
from streams.rules.names import MAX_NAME, validated_name

# Limited, since every pass of the sequencer and every claim reads a row of each partition.
MAX_PARTITIONS = 1000


def topic_of(name: str, using: str) -> Topic:
    """Return the topic ``name``; raises UnknownTopic."""
    found = Topic.objects.using(using).filter(name=name).first()
    if found is None:
        raise UnknownTopic(_("There is no topic %s.") % name)
    return found


def create(name: str, partitions: int, using: str) -> Topic:
    """Create and return a topic; raises InvalidName, InvalidPartitions, TopicExists."""
    validated_name(name, "topic", longest_name(MAX_NAME))
    _check(partitions, 1)

    def work() -> Topic:
        with own_transaction(using):
            topic = Topic(name=name)
            topic.save(using=using)
            _add(topic, range(1, partitions), using)
            announce_topic(name, using)
        return topic

    try:
        return retrying(work, using)
    except IntegrityError:
        raise TopicExists(_("There is a topic %s already.") % name) from None


def growing(topic: Topic, partitions: int, using: str) -> int:
    """Return how many partitions are missing to so many in all; raises InvalidPartitions."""
    now = Partition.objects.using(using).filter(topic=topic.pk).count()
    _check(partitions, now)
    return partitions - now


def grow(
    topic: Topic, partitions: int, using: str, *, check: Callable[[int], None] = lambda new: None
) -> int:
    """Let the topic have ``partitions`` partitions; return how many are new.

    Producers use the new ones within FRESH_SECONDS. A key may go to another partition then:
    messages of one key are in order before that and after it, but not across it. ``check`` may
    refuse the number of new ones. Raises InvalidPartitions, and UnknownTopic if it was deleted.
    """
    tried: list[int] = []

    def work() -> int:
        with own_transaction(using):
            # A new group takes this lock, too, so that each group gets a cursor of each partition.
            _lock(topic, using)
            new = growing(topic, partitions, using)
            if tried and not new:
                return tried[-1]  # committed: only the reply was lost
            check(new)
            tried.append(new)
            _add(topic, _free(topic, new, using), using)
        return new

    new = retrying(work, using)
    forget()
    return new


def retire(topic: Topic, using: str) -> bool:
    """Refuse producers, and let consumers finish; return False if they were refused before."""
    open_ = Topic.objects.using(using).filter(
        pk=topic.pk, access__in=(Access.READ_WRITE, Access.WRITE_ONLY)
    )
    tries = count()

    def work() -> bool:
        repeated = next(tries) > 0  # only the reply may have been lost
        return bool(open_.update(access=Access.READ_ONLY)) or repeated

    retired = retrying(work, using)
    forget()
    return retired


def _lock(topic: Topic, using: str) -> None:
    """Lock the row of the topic; raises UnknownTopic if it was deleted."""
    if not Topic.objects.using(using).select_for_update().filter(pk=topic.pk):
        raise UnknownTopic(_("There is no topic %s.") % topic.name)


def _free(topic: Topic, count: int, using: str) -> list[int]:
    """Return the lowest numbers that no partition has."""
    rows = Partition.objects.using(using).filter(topic=topic.pk)
    taken = set(rows.values_list("number", flat=True))
    return list(islice((number for number in range(MAX_PARTITIONS) if number not in taken), count))


def _check(partitions: int, now: int) -> None:
    if not now <= partitions <= MAX_PARTITIONS:
        text = _("The topic can have %(now)d … %(most)d partitions: they only grow.")
        raise InvalidPartitions(text % {"now": now, "most": MAX_PARTITIONS})


def add_partition(name: str, number: int, using: str) -> None:
    """Let the topic have a partition of this number, beside those that are there.

    Its numbers need not be dense then: those that have a meaning are added when they are first
    needed. In a transaction of the caller's it is committed by another connection. Raises
    InvalidPartitions, UnknownTopic.
    """

    def work() -> None:
        with own_transaction(using):
            topic = topic_of(name, using)
            _lock(topic, using)
            there = Partition.objects.using(using).filter(topic=topic.pk)
            numbers = list(there.values_list("number", flat=True))
            if number not in numbers:
                _check(len(numbers) + 1, len(numbers))
                _add(topic, [number], using)

    if can_commit_apart(using):
        elsewhere(using, lambda: retrying(work, using))
    else:
        retrying(work, using)
    forget()


def _add(topic: Topic, numbers: Iterable[int], using: str) -> None:
    """Add the partitions of these numbers; every group reads them from their beginning."""
    groups = ConsumerGroup.objects.using(using).filter(topic=topic.pk, mode=Mode.CLUSTER)
    ids = list(groups.values_list("pk", flat=True))
    for number in numbers:
        # Ids: with objects Django would ask the project's database routers.
        partition = Partition.objects.using(using).create(topic_id=topic.pk, number=number)
        Cursor.objects.using(using).bulk_create(
            Cursor(group_id=group, partition_id=partition.pk) for group in ids
        )
