"""A snapshot that is held for long, and a transaction that stays open, while EMS goes on.

The server keeps what the snapshot may still read: each row that left the inbox stays in the index.
The messages of the open transaction have lower ids than all that pass it; they come as soon as it
is committed, with the next offsets, and in their order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import transaction
from django.db.models import Count, Max, Min

from tests.lab.benchmarks.growth.place import BATCH, CLIENT, Place
from tests.lab.benchmarks.growth.units import Counts, consume, counts
from tests.lab.benchmarks.server import connect, execute
from tests.sessions import Session

LATE = ("late one", "late two")
ROUND = 1_000  # messages that pass in a round, at least one round each


def held(place: Place, seconds: float, rounds: int) -> tuple[Counts, Counts, int]:
    """Hold both while messages pass, for ``seconds`` and so many ``rounds``, whichever is longer.

    Returns the counts before and while both are held, and how many messages have passed.
    """
    before = counts(place)
    with _snapshot(), _open_transaction(place) as commit:
        passed, ends = 0, time.monotonic() + seconds
        while rounds > 0 or time.monotonic() < ends:
            _pass_on(place)
            passed, rounds = passed + ROUND, rounds - 1
        now = counts(place)
        commit()
        _late_ones_come(place)
    return before, now, passed


def _pass_on(place: Place) -> None:
    from streams import Outgoing, send_many
    from streams.deliver.claim import Claimer
    from streams.log.sequencer import sequence

    claimer = Claimer(place.groups[0], CLIENT, "t", "default")
    for _ in range(ROUND // BATCH):
        send_many([Outgoing(place.topic.name, "x") for _ in range(BATCH)])
        sequence("default")
        consume(claimer)


@contextmanager
def _snapshot() -> Iterator[None]:
    reader = connect()
    execute(reader, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    execute(reader, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    ((before,),) = execute(reader, "SELECT COUNT(*) FROM ems_topic_group_log")
    yield
    ((now,),) = execute(reader, "SELECT COUNT(*) FROM ems_topic_group_log")
    assert before == now, "the snapshot was not held"
    reader.close()


@contextmanager
def _open_transaction(place: Place) -> Iterator[Callable[[], None]]:
    """Send LATE in a transaction on a connection of its own; yield what commits it."""
    from streams import send

    late = Session()
    with late.active():
        transaction.set_autocommit(False)
        for body in LATE:
            send(place.topic.name, body)

    def commit() -> None:
        with late.active():
            transaction.commit()

    yield commit
    late.close()


def _late_ones_come(place: Place) -> None:
    """See that the late messages get the next offsets, in their order, and reach the group."""
    from streams.deliver.claim import Claimer
    from streams.log.bodies import stored_messages
    from streams.log.sequencer import sequence
    from streams.models import Message, Partition

    rows = Partition.objects.filter(pk=place.partition.pk).values_list("next_offset", flat=True)
    end = rows.get()
    sequence("default")
    assert rows.get() == end + len(LATE), "the late messages were not sequenced"
    log = Message.objects.filter(partition=place.partition.pk, offset__isnull=False)
    first, last, count = log.aggregate(a=Min("offset"), b=Max("offset"), n=Count("pk")).values()
    assert (last, count) == (end + len(LATE) - 1, last - first + 1), "the log has a hole"
    claimer = Claimer(place.groups[0], CLIENT, "t", "default")
    while (delivery := consume(claimer)).last_offset < last:
        pass
    handled = stored_messages(place.partition.pk, delivery.first_offset, last + 1, "default")
    bodies = tuple(row.raw_body.decode() for row in handled[-len(LATE) :])
    assert bodies == LATE, f"the late messages came as {bodies}"
