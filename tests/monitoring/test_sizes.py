"""What the messages of a topic take is estimated from its whole log, and from the server."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from monitoring.live.inbox import partition_states
from monitoring.live.sizes import LOGS, SAMPLED, Size, size_of
from streams import Outgoing, send_many
from streams.log.sequencer import sequence
from streams.models import Message, Partition, Topic
from streams.observe.mysql_server import table_sizes
from streams.operate.topics import create
from tests.processes import wait_for

pytestmark = pytest.mark.django_db


def log(topic: str, number: int, sizes: list[int], **values: Any) -> Partition:
    """Make a log whose messages have these sizes."""
    partition = Partition.objects.get(topic__name=topic, number=number)
    Message.objects.bulk_create(
        Message(partition=partition, offset=offset, size=size, body=b"", body_type="text", **values)
        for offset, size in enumerate(sizes)
    )
    Partition.objects.filter(pk=partition.pk).update(next_offset=len(sizes))
    return partition


def size(name: str) -> Size:
    topic = Topic.objects.get(name=name)
    states = partition_states("default", timezone.now(), topic.partitions.all())
    return size_of("default", topic.pk, states)


def test_bodies_that_grow_over_time_are_estimated_from_the_whole_log() -> None:
    create("orders", 2, "default")
    grown = [offset * offset // 100 for offset in range(3000)]
    log("orders", 0, grown)
    log("orders", 1, [10] * 500)
    bodies = sum(grown) + 5000
    found = size("orders")
    assert found.bodies == pytest.approx(bodies, rel=0.05)
    assert found.mean == pytest.approx(bodies / 3500, rel=0.05)
    # The newest hundred messages of each partition, whose mean once stood for all.
    assert 3500 * (sum(grown[-100:]) + 1000) / 200 > 1.2 * bodies


def test_what_is_purged_does_not_count_and_a_small_log_is_read_to_its_end() -> None:
    create("orders", 1, "default")
    log("orders", 0, [1000] * 10 + [1, 2, 3])
    Partition.objects.update(first_offset=10)
    found = size("orders")
    assert (found.mean, found.bodies, found.sampled) == (2, 6, 3)
    create("empty", 1, "default")
    assert (size("empty").mean, size("empty").bodies, size("empty").on_disk) == (None, None, None)


def test_few_messages_are_read_however_many_partitions_there_are() -> None:
    create("orders", 60, "default")
    create("flights", 60, "default")
    for number in range(60):
        log("orders", number, [7] * 9)
        log("flights", number, [7] * 9)
    topic = Topic.objects.get(name="orders")
    states = partition_states("default", timezone.now(), topic.partitions.all())
    with CaptureQueriesContext(connection) as queries:
        found = size_of("default", topic.pk, states)
    assert found.sampled <= SAMPLED
    assert found.bodies == 60 * 9 * 7
    assert len(queries) <= 4
    (read,) = [
        query["sql"] for query in queries if " IN (" in query["sql"] and "size" in query["sql"]
    ]
    assert read.count(" IN (") <= 2 * LOGS + 1  # one is about the types of bodies


@pytest.fixture
def counted_at_once() -> Iterator[None]:
    """Let the server count the pages of the messages when they change.

    Otherwise a thread of it counts one table in ten seconds, after all that have changed before.
    """
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE `ems_msg` STATS_PERSISTENT=0")
        yield
        cursor.execute("ALTER TABLE `ems_msg` STATS_PERSISTENT=DEFAULT")


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("counted_at_once")
def test_topics_share_what_the_table_takes_and_it_is_read_as_it_is_now() -> None:
    create("orders", 1, "default")
    create("flights", 1, "default")
    partition = log("orders", 0, [3000] * 200)
    log("flights", 0, [100] * 200)
    before = (table_sizes("default") or {})["ems_msg"] or 0
    large, small = size("orders"), size("flights")
    assert large.table == small.table == before
    assert (large.on_disk or 0) + (small.on_disk or 0) == pytest.approx(before, rel=0.01)
    assert (large.on_disk or 0) > 5 * (small.on_disk or 0)
    # MariaDB does not count after an update that no index sees.
    body = Random().randbytes(10_000)  # noqa: S311
    values = {"partition": partition, "size": len(body), "body": body, "body_type": "text"}
    Message.objects.bulk_create(Message(offset=200 + n, **values) for n in range(200))
    wait_for(lambda: ((table_sizes("default") or {})["ems_msg"] or 0) > before + 1_000_000)


def test_a_body_counts_as_it_was_sent_and_on_disk_as_it_is_stored() -> None:
    noise = Random(1).randbytes(10_000)  # noqa: S311 - it does not shrink
    for topic, value in (("orders", "a" * 10_000), ("flights", noise)):
        create(topic, 1, "default")
        send_many([Outgoing(topic, value)] * 20)
    sequence("default")
    with patch("monitoring.live.sizes.table_sizes", lambda using: {"ems_msg": 1_000_000}):
        shrunk, whole = size("orders"), size("flights")
    assert shrunk.bodies == whole.bodies == 20 * 10_000
    assert (shrunk.on_disk or 0) < 0.05 * (whole.on_disk or 0)
