"""The units of work that must not cost more in a larger place."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from tests.lab.benchmarks.growth.counting import Count, count
from tests.lab.benchmarks.growth.place import BATCH, CLIENT, Place

if TYPE_CHECKING:
    from streams.models import Delivery

MINUTE = timedelta(minutes=1)
PURGED = 100  # messages of a purge slice

Counts = dict[str, Count]


def counts(place: Place) -> Counts:
    """Do each unit once, and count; what is read once only has been read before."""
    from streams import send
    from streams.deliver.claim import Claimer
    from streams.deliver.due import Places, partitions, what_is_due
    from streams.log.lag import lags
    from streams.log.sequencer import sequence
    from streams.steps.sweep import sweep

    topic, group, partition = place.topic.name, place.groups[0], place.partition

    def sent(messages: int) -> None:
        for _ in range(messages):
            send(topic, "x", partition=partition.number)

    claimer = Claimer(group, CLIENT, "t", "default")
    sent(1)
    sequence("default")
    consume(claimer)
    looked = Places([one.pk for one in place.groups], partitions("default"))
    work: dict[str, Callable[[], object]] = {
        "a send": lambda: sent(1),
        "a pass over 100 messages": lambda: sequence("default", [partition.pk]),
        "a claim of 100 and its settlement": lambda: consume(claimer),
        "a look for retries": lambda: claimer.claim_retry(MINUTE),
        "a look of a consumer": lambda: what_is_due(looked, "default"),
        "an idle pass": lambda: sequence("default"),
        "an idle sweep": lambda: sweep("default"),
        "the lag of all groups": lambda: lags(place.groups, "default"),
        f"a purge of {PURGED}": lambda: purge(place),
    }
    found = {}
    for name, unit in work.items():
        if name.startswith("a pass"):
            sent(BATCH - 1)  # with the one that was counted
        if name.startswith("a purge"):
            keep_less(place)
        found[name] = count(unit)
    return found


def consume(claimer: object) -> Delivery:
    """Claim a batch, read its messages and settle it."""
    from streams.consume.outcome.settle import settle
    from streams.deliver.claim import Claimer
    from streams.log.bodies import stored_messages

    assert isinstance(claimer, Claimer)
    delivery = claimer.claim(BATCH, MINUTE)
    assert delivery, "nothing was claimed"
    end = delivery.last_offset + 1
    rows = stored_messages(delivery.partition_id, delivery.first_offset, end, "default")
    assert len(rows) == end - delivery.first_offset, "messages are missing"
    settle(delivery, end, max_retries=1)
    return delivery


def keep_less(place: Place) -> None:
    """Let the topic keep PURGED messages less than its partition has."""
    from streams.models import Partition, Topic

    partition = Partition.objects.get(pk=place.partition.pk)
    kept = partition.next_offset - partition.first_offset - PURGED
    Topic.objects.filter(pk=place.topic.pk).update(retention_count=kept)


def purge(place: Place) -> None:
    from streams.models import Topic
    from streams.retain.purge import Purge

    done = Purge("default").run(Topic.objects.get(pk=place.topic.pk))
    assert sum(one.deleted for one in done) == PURGED
