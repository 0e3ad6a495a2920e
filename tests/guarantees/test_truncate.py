"""TRUNCATE ems_msg, when the disk is full: what it costs is counted, and the stream goes on."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from streams import Outgoing, Reject, Retry, consumer, send, send_many
from streams.consume.outcome.dead_letter import redrive
from streams.log.sequencer import sequence
from streams.models import (
    Cursor,
    DeadMessage,
    Delivery,
    Message,
    Partition,
    RetryMessage,
    Topic,
    UtcNow,
)
from streams.observe.audit.walk import audit
from streams.retain.purge import Purge
from streams.testing import drain
from tests.consuming import Process, consume_the_rest
from tests.faults import Once, statements

pytestmark = pytest.mark.django_db(transaction=True)

DAY = timedelta(days=1)


def truncate():
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute("TRUNCATE TABLE ems_msg")
        else:
            cursor.execute("DELETE FROM ems_msg")
            cursor.execute("DELETE FROM sqlite_sequence WHERE name = 'ems_msg'")


@pytest.fixture
def seen(transactional_db, clean_registry):
    """What the group has handled: 1 is retried once, 2 is dead until it is redriven."""
    handled: list[object] = []

    @consumer("orders", group="mail", batch=5)
    def mail(messages):
        failures: dict[object, Exception] = {}
        for message in messages:
            if message.body == 1:
                failures[message] = Retry("later", delay=60)
            elif message.body == 2 and "redriven" not in handled:
                failures[message] = Reject("no")
            else:
                handled.append(message.body)
        return failures

    return handled


def test_what_is_in_every_state_ends_and_new_messages_flow(seen):
    """Done, to be retried, dead, in hand, unread, in the inbox, delayed: then all bodies go."""
    send_many([Outgoing("orders", n) for n in range(5)])
    drain()
    send_many([Outgoing("orders", n) for n in range(5, 20)])
    sequence("default")
    Process("mail").claim(batch=5)
    send("orders", "inbox")
    send("orders", "delayed", delay=DAY)
    highest = Message.objects.latest("pk").pk
    truncate()
    first = send("orders", "after").message_id
    assert first < highest  # ids start again, offsets do not
    seen.clear()
    consume_the_rest("mail")
    assert seen == ["after"]
    assert Message.objects.get().offset == 20
    missing = sum(Delivery.objects.values_list("missing", flat=True))
    assert missing == 16  # 1, 5 … 19: neither done nor dead
    assert Cursor.objects.get().next_offset == Partition.objects.get().next_offset == 21
    assert not RetryMessage.objects.exists()
    assert not Delivery.objects.open().exists()
    # The letter has a copy of its own.
    seen.append("redriven")
    redrive(DeadMessage.objects.get())
    drain()
    assert seen[-1] == 2
    (hole,) = audit("default")
    assert (hole.kind, hole.offsets) == ("hole", range(20))


def test_the_hole_is_gone_from_the_audit_when_it_is_purged(seen):
    send_many([Outgoing("orders", n) for n in range(10)])
    sequence("default")
    truncate()
    send("orders", "after")
    consume_the_rest("mail")
    assert [finding.kind for finding in audit("default")] == ["hole"]
    Topic.objects.update(retention_count=1)
    (outcome,) = Purge("default").run()
    assert (outcome.floor.offset, outcome.deleted) == (10, 0)
    assert audit("default") == []
    assert Message.objects.get().body == b"after"


def test_a_purge_by_age_takes_what_is_missing_for_new(seen):
    send_many([Outgoing("orders", n) for n in range(10)])
    drain()
    Topic.objects.update(retention_seconds=3600)
    consume_the_rest("mail")
    truncate()
    send("orders", "after")
    drain()
    (outcome,) = Purge("default").run()
    assert outcome.floor.offset == 0
    Message.objects.update(sequenced_at=UtcNow(-DAY))
    send("orders", "now")
    drain()
    (outcome,) = Purge("default").run()
    assert (outcome.floor.offset, outcome.deleted) == (11, 1)
    assert audit("default") == []


def test_a_purge_that_is_overtaken_by_a_truncate_leaves_the_new_messages(seen):
    """New messages have the ids of old ones by now, and other offsets."""
    send_many([Outgoing("orders", n) for n in range(10, 20)])
    drain()
    Topic.objects.update(retention_count=1)

    def truncated(statement):
        truncate()
        send_many([Outgoing("orders", n) for n in range(20)])
        return statement()

    delete = "DELETE FROM `ems_msg`" if is_sqlite() else "DELETE `ems_msg`"
    with statements(Once(delete, truncated)):
        (outcome,) = Purge("default").run()
    assert (outcome.floor.offset, outcome.deleted) == (9, 0)
    assert Message.objects.filter(offset=None).count() == 20


def is_sqlite():
    return connection.vendor == "sqlite"
