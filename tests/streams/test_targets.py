"""A target is an offset in each partition, and a time is found without reading the log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from streams import Outgoing, send_many
from streams.errors import InvalidTarget, NaiveDatetime
from streams.log.sequencer import sequence
from streams.models import ConsumerGroup, Message, Partition
from streams.operate.target import Target
from streams.operate.topics import create

pytestmark = pytest.mark.django_db

MESSAGES = 20
MINUTE = timedelta(minutes=1)


@pytest.fixture
def partition() -> Partition:
    """Offsets 5 … 19, each sequenced a minute after the one before; 0 … 4 are purged."""
    send_many([Outgoing("orders", n) for n in range(MESSAGES)])
    sequence("default")
    for offset in range(MESSAGES):
        Message.objects.filter(offset=offset).update(sequenced_at=at(offset))
    Message.objects.filter(offset__lt=5).delete()
    Partition.objects.update(first_offset=5)
    return Partition.objects.get()


START = timezone.now().replace(microsecond=0) - timedelta(hours=1)


def at(offset: float) -> datetime:
    return START + offset * MINUTE


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("earliest", 5),
        ("latest", 20),
        ("0", 0),
        ("12", 12),
        (" 12 ", 12),
        ("+3", 13),
        ("-3", 7),
        ("-30", -20),
        ("+0", 10),
        ("1,012", 1012),
        ("-1,000", -990),
        ("orders/0@1,012", 1012),
    ],
)
def test_a_target_is_an_offset_of_the_partition(
    partition: Partition, text: str, offset: int
) -> None:
    assert Target.parse(text).offset(partition, 10) == offset


@pytest.mark.parametrize(
    "text",
    ["", "first", "1.5", "orders/0@1-2", "orders/0@x", "--1", "1e3", "2026-11-20", "noon", "٣x"],
)
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(InvalidTarget, match="not a place in a log"):
        Target.parse(text)


@pytest.mark.parametrize("text", ["2026-02-31T10:00Z", "1" * 19, "+" + "1" * 19])
def test_what_is_no_time_and_no_offset_is_refused(text: str) -> None:
    with pytest.raises(InvalidTarget, match="not a place in a log"):
        Target.parse(text)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(NaiveDatetime, match=r"as in 2026-11-20T10:00Z or 2026-11-20T10:00\+01:00"):
        Target.parse("2026-11-20T10:00")


def test_a_time_means_the_same_in_every_zone() -> None:
    noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    for text in ("2026-11-20T12:00Z", "2026-11-20 20:00:00+08:00", "2026-11-20T07:00-05:00"):
        assert Target.parse(text).time == noon


@pytest.mark.parametrize(
    ("time", "offset"),
    [(-10, 5), (4.5, 5), (5, 5), (5.5, 6), (11, 11), (11.001, 12), (19, 19), (19.5, 20), (900, 20)],
)
def test_a_time_is_the_first_offset_sequenced_then_or_later(
    partition: Partition, time: float, offset: int
) -> None:
    assert Target(time=at(time)).offset(partition) == offset


def test_a_time_is_found_where_messages_are_gone(partition: Partition) -> None:
    Message.objects.filter(offset__gte=8, offset__lt=14).delete()
    assert Target(time=at(6)).offset(partition) == 6
    assert Target(time=at(15)).offset(partition) == 15
    # Between the two that are left, nobody knows: all that is there and older lies before it.
    assert 8 <= Target(time=at(10)).offset(partition) <= 14
    Message.objects.filter(offset__gte=8).delete()
    assert Target(time=at(6)).offset(partition) == 6
    assert 8 <= Target(time=at(15)).offset(partition) <= 20
    Message.objects.all().delete()
    assert 5 <= Target(time=at(10)).offset(partition) <= 20


def test_a_time_in_an_empty_log_is_its_end() -> None:
    send_many([Outgoing("orders", 1)])
    assert Target(time=at(0)).offset(Partition.objects.get()) == 0


def test_a_time_is_found_by_looking_at_few_messages(partition: Partition) -> None:
    with CaptureQueriesContext(connection) as queries:
        Target(time=at(11)).offset(partition)
    assert len(queries) <= 5  # log2 of 15, rounded up, and one


def test_a_place_is_of_one_partition_of_the_groups_topic() -> None:
    group = ConsumerGroup.objects.create(topic=create("orders", 3, "default"), name="mail")
    create("flights", 1, "default")
    place = Target.parse("orders/2@666,687")
    assert (place.number, place.only(group, None, "default")) == (666687, 2)
    assert place.only(group, 2, "default") == 2
    assert Target.parse("12").only(group, None, "default") is None
    for text, number in (("orders/2@1", 1), ("orders/3@1", None), ("flights/0@1", None)):
        with pytest.raises(InvalidTarget, match="not in the log that is meant"):
            Target.parse(text).only(group, number, "default")
