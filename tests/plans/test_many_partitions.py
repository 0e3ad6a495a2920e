"""A look at very many partitions costs an entry for each, whatever waits in their inboxes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection

from streams import Outgoing, send_many
from streams.deliver.due import Places, partitions, what_is_due
from streams.log import sequencer
from streams.models import Partition, Topic

pytestmark = [pytest.mark.mysql, pytest.mark.django_db(transaction=True)]

PARTITIONS = 1200  # MariaDB makes a join of an IN list with 1,000 members
MESSAGES = 10_000


def reads(work: Callable[[], object]) -> int:
    """Return how many entries of indexes and rows of tables the server reads for ``work``."""
    before = read_so_far()
    work()
    return read_so_far() - before


def read_so_far() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
        return sum(int(value) for _name, value in cursor.fetchall())


def test_a_look_steps_over_no_message() -> None:
    topic = Topic.objects.create(name="orders")
    there = topic.partitions.count()
    more = [Partition(topic=topic, number=number) for number in range(there, PARTITIONS)]
    Partition.objects.bulk_create(more)
    for _ in range(MESSAGES // 1000):
        send_many([Outgoing("orders", n, partition=n % 10) for n in range(1000)])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE TABLE ems_msg, ems_partition")
    places = Places([], partitions("default"))
    assert reads(lambda: what_is_due(places, "default")) < 4 * PARTITIONS
    assert reads(lambda: sequencer._partitions("default")) < 4 * PARTITIONS
