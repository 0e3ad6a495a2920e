"""Which partition a message goes to."""

from __future__ import annotations

import zlib
from collections import Counter

import pytest
from django.db import connection

from streams import Outgoing, StreamsError, send, send_many
from streams.models import Message, Partition, Topic
from streams.rules.partition import partition_of
from tests.rows import nothing_written

pytestmark = pytest.mark.django_db

# Frozen: a key that moves to another partition loses its order.
VECTORS = [
    ("", 4, 0),
    ("a", 4, 3),
    ("order-1", 4, 3),
    ("order-2", 4, 1),
    ("order-42", 12, 10),
    ("客户7", 12, 2),
    ("\U0001f600", 1000, 756),
]


@pytest.fixture
def topic() -> Topic:
    topic = Topic.objects.create(name="orders")
    for number in (1, 2, 3):
        Partition.objects.create(topic=topic, number=number)
    return topic


def numbers() -> list[int]:
    return list(Message.objects.order_by("id").values_list("partition__number", flat=True))


@pytest.mark.parametrize(("key", "count", "partition"), VECTORS)
def test_the_hash_never_changes(key, count, partition):
    assert partition_of(key, count) == partition


def test_the_hash_is_the_crc_32_that_everybody_has(vendor):
    assert zlib.crc32(b"123456789") == 0xCBF43926  # the check value of IEEE 802.3
    if vendor == "sqlite":
        return
    with connection.cursor() as cursor:
        for key, count, partition in VECTORS:
            cursor.execute("SELECT MOD(CRC32(%s), %s)", [key, count])
            assert cursor.fetchone() == (partition,)


def test_keys_spread_over_all_partitions():
    counts = Counter(partition_of(f"customer-{n}", 8) for n in range(8000))
    assert len(counts) == 8
    assert min(counts.values()) > 800


@pytest.mark.usefixtures("topic")
def test_messages_of_a_key_go_to_one_partition():
    results = [send("orders", n, key="order-1") for n in range(5)]
    results += send_many([Outgoing("orders", n, key="order-1") for n in range(5)])
    assert {result.partition for result in results} == {3}
    assert numbers() == [3] * 10


@pytest.mark.usefixtures("topic")
def test_messages_without_a_key_go_round():
    results = [send("orders", n) for n in range(8)]
    assert Counter(numbers()) == {0: 2, 1: 2, 2: 2, 3: 2}
    assert [result.partition for result in results] == numbers()


@pytest.mark.usefixtures("topic")
def test_messages_without_a_key_go_round_also_one_by_one_in_send_many():
    """As those with a dedup key do."""
    for n in range(8):
        send_many([Outgoing("orders", n)])
    assert Counter(numbers()) == {0: 2, 1: 2, 2: 2, 3: 2}


@pytest.mark.usefixtures("topic")
def test_a_partition_can_be_chosen():
    assert send("orders", 1, key="order-1", partition=2).partition == 2
    assert send_many([Outgoing("orders", 1, partition=3)])[0].partition == 3
    assert numbers() == [2, 3]


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("partition", [-1, 4, "1", 1.0, True])
def test_a_partition_that_is_not_there_is_refused(partition):
    with nothing_written():
        with pytest.raises(StreamsError, match="partition"):
            send("orders", 1, partition=partition)
        with pytest.raises(StreamsError, match="partition"):
            send_many([Outgoing("orders", 1), Outgoing("orders", 1, partition=partition)])


def test_a_missing_topic_is_not_created_for_a_partition_that_it_would_not_have():
    with nothing_written(), pytest.raises(StreamsError, match="partition"):
        send_many([Outgoing("orders", 1, partition=1)])
    with nothing_written(), pytest.raises(StreamsError, match="partition"):
        send("orders", 1, partition=1)
