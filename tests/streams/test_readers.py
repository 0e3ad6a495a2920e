"""Streams of Spark in the tables: who is waited for, until when, and what is said of the others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from streams import Outgoing, consumer, runtime_settings, send_many
from streams.database.clock import database_now
from streams.log.sequencer import sequence
from streams.models import (
    Access,
    ConsumerGroup,
    Cursor,
    Message,
    Partition,
    Reader,
    SystemConfig,
    Topic,
    UtcNow,
)
from streams.observe.diagnoses import ERROR, OK, WARNING
from streams.observe.readers import readers as diagnoses
from streams.observe.topics import unread
from streams.operate.topic_deletion import TopicDeletion
from streams.retain.purge import Purge
from streams.retain.readers import ReaderState, readers
from streams.testing import drain

DAY = timedelta(days=1)

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]


def log(days: float = 8, **about: Any) -> Topic:
    """Ten messages that are so old, and are to be kept for seven days."""
    send_many([Outgoing("orders", n) for n in range(10)])
    sequence("default")
    Message.objects.update(sequenced_at=UtcNow(-days * DAY))
    Topic.objects.update(**{"retention_seconds": 7 * 86400, **about})
    return Topic.objects.get()


def stream(topic: Topic, offset: int = 6, seen: timedelta = timedelta(0), **more: Any) -> Reader:
    place = {str(topic.partitions.get(number=0).pk): offset}
    rows = {"checkpoint": "c", "name": "lake", "positions": place, **more}
    return Reader.objects.create(topic=topic, seen_at=UtcNow(-seen), **rows)


def kept_from(**how: Any) -> list[int]:
    """Purge; return where each partition begins."""
    Purge("default", **how).run()
    firsts = dict(Partition.objects.values_list("number", "first_offset"))
    return [firsts[number] for number in sorted(firsts)]


def state() -> ReaderState:
    (one,) = readers("default")
    return one.state


def test_a_purge_never_passes_a_stream_that_protects() -> None:
    stream(log(), protect=True)
    assert kept_from() == [6]
    (one,) = Purge("default").preview()
    assert [str(hold) for hold in one.floor.holds] == ["has not read from 6 on"]
    assert one.floor.holds[0].who({}) == "lake (c)"


def test_a_purge_passes_a_stream_that_does_not_protect() -> None:
    stream(log())
    assert kept_from() == [10]


def test_of_two_streams_the_one_that_is_further_behind_holds() -> None:
    topic = log()
    stream(topic, protect=True)
    stream(topic, 2, checkpoint="d", protect=True)  # also called lake
    assert kept_from() == [2]


def test_a_partition_that_a_stream_has_not_come_to_yet_is_kept_whole() -> None:
    topic = log()
    stream(topic, protect=True)
    new = Partition.objects.create(topic=topic, number=1, next_offset=3)
    rows = Message.objects.all()[:3]
    for offset, row in enumerate(rows):
        row.pk, row.partition, row.offset = None, new, offset
        row.save(force_insert=True)
    assert kept_from() == [6, 0]


def test_consumed_messages_are_kept_for_a_stream_that_protects() -> None:
    @consumer("orders", group="mail")
    def mail(message: Any) -> None:
        pass

    topic = log(0, retention_seconds=None, retention_consumed=True)
    drain()
    stream(topic, protect=True)
    assert kept_from() == [6]
    Reader.objects.update(protect=False)
    assert kept_from() == [10]


def test_a_forced_purge_stops_at_it_too_and_skips_no_group_beyond() -> None:
    topic = log()
    group = ConsumerGroup.objects.create(topic=topic, name="mail")
    cursor = Cursor.objects.create(group=group, partition=topic.partitions.get())
    stream(topic, protect=True)
    (preview,) = Purge("default", force=True).preview()
    assert preview.floor.offset == 6
    assert kept_from(force=True) == [6]
    cursor.refresh_from_db()
    assert cursor.next_offset == 6


def test_a_stream_that_is_forgotten_holds_nothing_after_its_time() -> None:
    topic = log()
    stream(topic, protect=True, seen=6 * DAY)
    assert kept_from() == [6]
    SystemConfig.objects.create(name="readerProtectDays", value=5)
    runtime_settings.forget()
    assert state() is ReaderState.UNPROTECTED
    (said,) = diagnoses("default")
    assert said.level == WARNING
    assert said.text.startswith("lake (c) on orders: no longer protected; 4 messages are")
    assert kept_from() == [10]
    assert state() is ReaderState.LOST
    (said,) = diagnoses("default")
    assert said.level == ERROR
    assert "4 messages were purged before they were read" in said.text


def test_a_stream_is_waited_for_as_long_as_the_setting_says_by_default_seven_days() -> None:
    stream(log(), protect=True, seen=8 * DAY)
    assert kept_from() == [10]


def test_how_it_stands_is_told_before_a_purge_passes_it() -> None:
    topic = log(days=6)
    row = stream(topic, seen=timedelta(hours=2))
    (one,) = readers("default")
    assert (one.behind, one.lost, one.protects, one.state) == (4, 0, False, ReaderState.NEAR)
    assert one.used == pytest.approx(6 / 7, abs=0.01)
    assert one.room is not None
    assert one.room.total_seconds() == pytest.approx(86400, abs=60)
    (said,) = diagnoses("default")
    assert "a purge may pass it in 23 h 59 min; 4 messages are unread; last seen 2 h" in said.text
    Message.objects.update(sequenced_at=UtcNow(-5 * DAY))
    assert state() is ReaderState.BEHIND
    assert [one.level for one in diagnoses("default")] == [OK]
    Message.objects.update(sequenced_at=UtcNow(-9 * DAY))
    Reader.objects.update(protect=True)
    assert state() is ReaderState.HOLDING
    Topic.objects.update(retention_seconds=0)
    assert state() is ReaderState.BEHIND
    Reader.objects.update(seen_at=UtcNow(-2 * DAY))
    assert state() is ReaderState.SILENT
    Reader.objects.update(positions=dict.fromkeys(row.positions, 10))
    assert state() is ReaderState.AT_END


def test_of_a_count_the_messages_behind_are_a_share() -> None:
    stream(log(0, retention_seconds=None, retention_count=5))
    (one,) = readers("default")
    assert (one.used, one.state) == (0.8, ReaderState.NEAR)


def test_the_rate_is_that_of_the_time_in_which_it_was_seen() -> None:
    row = stream(log(), total=600, before_total=0)
    now = database_now("default")
    row.seen_at, row.before_at = now, now - timedelta(minutes=1)
    assert row.rate == 10
    row.total = -5  # of a checkpoint that was restored
    assert row.rate == 0
    row.before_at = now
    assert row.rate is None


def test_the_doctor_does_not_take_a_topic_for_unread_that_a_stream_reads() -> None:
    topic = log()
    assert [one.topic for one in unread("default")] == [topic]
    stream(topic)
    assert not list(unread("default"))


def test_a_deleted_topic_takes_its_streams_along() -> None:
    topic = log()
    stream(topic, protect=True)
    Topic.objects.update(access=Access.DENIED)
    deletion = TopicDeletion(topic, "default", force=True)
    deletion.close()
    deletion.finish()
    assert not Reader._base_manager.exists()


def test_a_stream_that_was_seen_since_is_not_forgotten() -> None:
    row = stream(log())
    Reader.objects.update(seen_at=UtcNow(timedelta(seconds=1)))
    assert not row.forget()
    assert Reader.objects.get().forget()
    assert not Reader.objects.exists()
