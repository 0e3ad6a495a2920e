"""Bodies that are not there when they are to be read: late ones are delivered, purged ones are
missing, and none ends as done.

After a failover, and on a cluster, the server that is asked may not have caught up yet, also one
that is asked as the primary: so one reading that comes back short proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import connection

from streams import Outgoing, Retry, consumer, send, send_many
from streams.consume.subscription import subscribe
from streams.log import bodies
from streams.log.sequencer import sequence
from streams.models import (
    Cursor,
    DeadMessage,
    Delivery,
    Kind,
    Message,
    Partition,
    RetryMessage,
    State,
)
from streams.observe.audit.walk import audit
from streams.testing import advance, drain
from tests.consuming import Process, registered

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

A_WHILE = timedelta(minutes=1)


@contextmanager
def behind(monkeypatch: pytest.MonkeyPatch, end: int) -> Iterator[None]:
    """The server that answers has nothing yet of the offsets from ``end`` on."""
    whole = bodies._read
    with monkeypatch.context() as patch:
        patch.setattr(
            bodies, "_read", lambda *place: [row for row in whole(*place) if row.offset < end]
        )
        yield


def expect(group: str, *, batch: int | None, atomic: bool = False) -> list[tuple[int, int]]:
    """Register a consumer; returns the list of what it sees: offset and attempt."""
    seen: list[tuple[int, int]] = []

    @consumer("orders", group=group, batch=batch, atomic=atomic)
    def handle(messages):
        seen.extend((m.offset, m.attempt) for m in (messages if batch else [messages]))

    return seen


@pytest.mark.parametrize("atomic", [False, True], ids=["plain", "atomic"])
@pytest.mark.parametrize("batch", [None, 10], ids=["one", "batch"])
@pytest.mark.parametrize("end", [0, 2])
def test_what_is_there_a_moment_later_is_delivered_with_its_attempt_unspent(
    monkeypatch, batch, atomic, end
):
    seen = expect("mail", batch=batch, atomic=atomic)
    send_many([Outgoing("orders", n) for n in range(4)])
    with behind(monkeypatch, end):
        first = drain("mail")
    assert (first.done, first.failed, first.missing) == (end, 0, 0)
    waiting = RetryMessage.objects.filter(delivery=None).order_by("offset")
    assert [(row.offset, row.attempt) for row in waiting] == [(n, 1) for n in range(end, 4)]
    assert not RetryMessage.objects.due().exists()  # the server gets a moment
    assert audit("default") == []

    advance(A_WHILE)
    assert drain("mail").done == 4 - end
    assert sorted(seen) == [(offset, 1) for offset in range(4)]
    assert not RetryMessage.objects.exists()
    assert Delivery.objects.get(kind=Kind.NEW).missing == 0
    assert audit("default") == []


def test_a_retry_too_is_read_again_before_its_body_counts_as_gone(monkeypatch):
    """It failed before, and the failover came while it waited."""
    seen = []

    @consumer("orders", group="mail")
    def handle(message):
        seen.append(message.attempt)
        if message.attempt == 1:
            raise Retry(delay=0)

    send("orders", 1)
    sequence("default")
    assert Process("mail").worker.step() == 0.0
    with behind(monkeypatch, 0):
        drain("mail")
    row = RetryMessage.objects.get()
    assert (row.attempt, row.delivery_id) == (2, None)
    advance(A_WHILE)
    assert drain("mail").done == 1
    assert seen == [1, 2]
    assert audit("default") == []


@pytest.mark.parametrize("batch", [None, 10], ids=["one", "batch"])
def test_what_was_purged_is_missing_at_once(batch):
    seen = expect("mail", batch=batch)
    send_many([Outgoing("orders", n) for n in range(4)])
    sequence("default")
    Partition.objects.update(first_offset=3)
    Message.objects.filter(offset__lt=3).delete()
    # A group that was there before the purge: its cursor is below the floor.
    subscribe(registered("orders", "mail"), "default", "earliest")
    Cursor.objects.update(next_offset=0, start_offset=0)
    result = drain("mail")
    assert (result.done, result.missing) == (1, 3)
    assert seen == [(3, 1)]
    assert (Delivery.objects.get().state, Delivery.objects.get().missing) == (State.DONE, 3)
    assert not RetryMessage.objects.exists()


def wipe() -> None:
    """An emergency: everything goes, and nobody raises first_offset."""
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute("TRUNCATE ems_msg")
        else:
            cursor.execute("DELETE FROM ems_msg")


def delete() -> None:
    Message.objects.filter(offset__gte=0).delete()


@pytest.mark.parametrize("gone", [delete, wipe])
@pytest.mark.parametrize("batch", [None, 10], ids=["one", "batch"])
def test_what_is_gone_is_missing_at_its_second_reading_and_never_done(gone, batch):
    seen = expect("mail", batch=batch)
    send_many([Outgoing("orders", n) for n in range(3)])
    sequence("default")
    gone()
    assert drain("mail").missing == 0
    assert RetryMessage.objects.count() == 3
    advance(A_WHILE)
    result = drain("mail")
    assert (result.done, result.failed, result.missing) == (0, 0, 3)
    assert seen == []
    assert not RetryMessage.objects.exists()
    assert not DeadMessage.objects.exists()
    assert sum(Delivery.objects.values_list("missing", flat=True)) == 3
