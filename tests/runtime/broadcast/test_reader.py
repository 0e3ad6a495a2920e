"""What a client makes of its positions and of the log, when both are as they should be, and not."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from streams import Outgoing, consumer, send, send_many
from streams.database import remembered
from streams.log import rewinds, topics
from streams.log.ends import End
from streams.log.offsets import offset_at
from streams.log.sequencer import sequence
from streams.models import Access, Cursor, Delivery, Message, Partition, RetryMessage, Topic, UtcNow
from streams.process.broadcast import reader as readers
from streams.process.broadcast.log import Log
from tests.broadcasting import files, offsets, written
from tests.faults import Once, statements

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)


def send_prices(*bodies: object) -> None:
    send_many([Outgoing("prices", body) for body in bodies])
    sequence("default")


def bodies(seen):
    return [message.body for message in seen]


def missed(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]


def grow() -> Partition:
    """The topic gets another partition."""
    topic = Topic.objects.get()
    topics.forget()
    return Partition.objects.create(topic=topic, number=topic.partitions.count())


def purge(below: int, *, delete: bool = True) -> None:
    Partition.objects.update(first_offset=below)
    if delete:
        Message.objects.filter(offset__lt=below).delete()


# --- where a client begins --------------------------------------------------------------------


@pytest.mark.usefixtures("prices")
def test_a_new_client_begins_at_the_earliest_message_kept_if_the_group_says_so(start, seen):
    send_prices(*range(5))
    purge(below=2)
    start().run_until_idle()
    assert bodies(seen) == [2, 3, 4]


@pytest.mark.usefixtures("clean_registry")
def test_a_new_client_begins_after_the_newest_message_unless_told_otherwise(start, seen):
    consumer("prices", group="cache", mode="broadcast")(seen.append)
    send_prices(0, 1)
    client = start()
    send_prices(2)
    client.run_until_idle()
    assert bodies(seen) == [2]


@pytest.mark.usefixtures("clean_registry")
def test_latest_is_remembered_even_if_nothing_came(start, seen):
    consumer("prices", group="cache", mode="broadcast")(seen.append)
    send_prices(0, 1)
    start().close()
    assert offsets() == {0: 2}
    send_prices(2, 3)
    start().run_until_idle()
    assert bodies(seen) == [2, 3]


@pytest.mark.usefixtures("clean_registry")
def test_what_a_client_begins_after_is_noted_so_that_a_restore_shows(start, seen):
    consumer("prices", group="cache", mode="broadcast")(seen.append)
    send_prices(0, 1)
    start()
    newest = Message.objects.get(offset=1)
    assert written() == {
        "0": {
            "offset": 2,
            "message_id": newest.pk,
            "sequenced_at": newest.sequenced_at.isoformat(),
        }
    }


@pytest.mark.usefixtures("prices")
def test_a_restart_goes_on_where_the_last_life_ended(start, seen):
    send_prices(0, 1)
    first = start()
    first.run_until_idle()
    first.close()
    send_prices(2)
    start().run_until_idle()
    assert bodies(seen) == [0, 1, 2]


@pytest.mark.usefixtures("prices")
def test_clients_of_other_names_have_positions_of_their_own(start, seen):
    send_prices(0, 1)
    start("cache", "left").run_until_idle()
    start("cache", "right").run_until_idle()
    assert bodies(seen) == [0, 1, 0, 1]
    assert len(files()) == 2


@pytest.mark.usefixtures("prices")
def test_a_partition_that_is_added_later_is_read_from_its_beginning(start, seen):
    client = start()
    added = grow()
    for number in (0, added.number):
        send("prices", f"in {number}", partition=number)
    client.run_until_idle()
    assert sorted(bodies(seen)) == ["in 0", "in 1"]
    assert offsets() == {0: 1, 1: 1}


@pytest.mark.usefixtures("clean_registry")
def test_a_partition_that_was_added_while_the_client_was_away_is_read_from_its_beginning(
    start, seen
):
    consumer("prices", group="cache", mode="broadcast")(seen.append)
    send_prices("before")
    start().close()
    added = grow()
    message = Message.objects.get()
    Message.objects.create(
        partition=added, body=message.body, body_type=message.body_type, size=1, producer="x"
    )
    sequence("default")
    start().run_until_idle()
    assert [(m.partition, m.offset) for m in seen] == [(1, 0)]


@pytest.mark.usefixtures("prices")
def test_partitions_take_turns(start, seen):
    client = start()
    added = grow()
    for number in (0, added.number):
        send_many([Outgoing("prices", n, partition=number) for n in range(30)])
    client.run_until_idle()
    assert {m.partition for m in seen[:20]} == {0, 1}
    for number in (0, 1):
        assert [m.offset for m in seen if m.partition == number] == list(range(30))


@pytest.mark.usefixtures("prices")
def test_a_long_backlog_does_not_keep_newer_messages_of_another_partition_waiting(
    start, seen, monkeypatch
):
    monkeypatch.setattr(readers, "REFRESH_SECONDS", 0.0)
    client = start()
    added = grow()
    send_many([Outgoing("prices", n, partition=0) for n in range(40)])
    sequence("default")
    client.worker.step()
    send("prices", "new", partition=added.number)
    sequence("default")
    client.worker.step()
    client.worker.step()
    assert "new" in bodies(seen)


# --- nothing is written to the database -------------------------------------------------------


@pytest.mark.usefixtures("prices")
def test_reading_writes_nothing_to_the_database_and_locks_nothing(start):
    client = start()
    send_prices(*range(25))
    with CaptureQueriesContext(connection) as queries:
        while client.worker.step() == 0.0:
            pass
    statements = [query["sql"] for query in queries if "ems_" in query["sql"]]
    assert all(statement.lstrip("( ").startswith("SELECT") for statement in statements)
    assert not any("FOR UPDATE" in statement for statement in statements)
    assert not Delivery.objects.exists()
    assert not RetryMessage.objects.exists()
    assert not Cursor.objects.exists()


@pytest.mark.usefixtures("prices")
def test_a_look_that_finds_nothing_is_one_statement(start):
    client = start()
    send_prices(0)
    client.run_until_idle()
    with CaptureQueriesContext(connection) as queries:
        client.worker.step()
    (statement,) = [query["sql"] for query in queries if "ems_" in query["sql"]]
    assert "ems_partition" in statement


# --- purged, deleted --------------------------------------------------------------------------


@pytest.mark.usefixtures("prices")
def test_a_position_older_than_what_is_kept_jumps_to_the_first_kept_offset_and_says_so(
    start, seen, caplog
):
    send_prices(0)
    first = start()
    first.run_until_idle()
    first.close()
    send_prices(*range(1, 10))
    purge(below=7)
    client = start()
    assert missed(caplog) == [
        "cache has missed 6 messages of prices/0: offsets 1 … 6 have been purged"
    ]
    client.run_until_idle()
    assert bodies(seen) == [0, 7, 8, 9]
    assert client.feed.reader.missed == 6
    assert offsets() == {0: 10}


@pytest.mark.usefixtures("prices")
def test_a_purge_that_overtakes_a_client_while_it_reads_is_noticed(start, seen, caplog):
    client = start()
    send_prices(*range(30))
    client.worker.step()
    purge(below=25)
    client.run_until_idle()
    assert bodies(seen) == [*range(10), *range(25, 30)]
    assert missed(caplog) == [
        "cache has missed 15 messages of prices/0: offsets 10 … 24 have been purged"
    ]


@pytest.mark.usefixtures("prices")
def test_a_jump_is_written_down_at_once(start, seen):
    client = start()
    send_prices(*range(5))
    purge(below=5)
    client.run_until_idle()
    assert seen == []
    assert offsets() == {0: 5}


@pytest.mark.usefixtures("prices")
def test_a_purge_between_the_look_and_the_read_is_noticed(start, seen, caplog, monkeypatch):
    client = start()
    send_prices(*range(30))
    take = client.feed.reader.take

    def take_and_be_overtaken(batch):
        delivery = take(batch)
        purge(below=5)
        return delivery

    with monkeypatch.context() as patch:
        patch.setattr(client.feed.reader, "take", take_and_be_overtaken)
        client.worker.step()
    client.run_until_idle()
    assert bodies(seen) == list(range(5, 30))
    assert missed(caplog) == [
        "cache has missed 5 messages of prices/0: offsets 0 … 4 have been purged"
    ]


@pytest.mark.usefixtures("prices")
def test_messages_that_are_gone_are_waited_for_and_then_passed_over_aloud(
    start, seen, caplog, monkeypatch
):
    client = start()
    send_prices(*range(12))
    Message.objects.filter(offset__in=[3, 4, 5]).delete()
    client.run_until_idle()
    assert bodies(seen) == [0, 1, 2]
    assert missed(caplog) == [
        "cache: the message prices/0@3 cannot be read; looking again for 10 s"
    ]
    assert not client.feed.reader.behind({Partition.objects.get().pk: 12})
    monkeypatch.setattr(readers, "ABSENT_SECONDS", 0.0)
    assert client.feed.reader.behind({Partition.objects.get().pk: 12})
    client.run_until_idle()
    assert bodies(seen) == [0, 1, 2, *range(6, 12)]
    assert missed(caplog)[1:] == [
        "cache has missed 3 messages of prices/0: offsets 3 … 5 are gone (deleted or truncated)"
    ]
    assert client.feed.reader.missed == 3


@pytest.mark.usefixtures("prices")
def test_messages_that_come_back_after_a_failover_are_not_missed(start, seen, caplog, monkeypatch):
    client = start()
    send_prices(0, 1)
    late = Message.objects.get(offset=1)
    Message.objects.filter(offset=1).delete()
    client.run_until_idle()
    assert bodies(seen) == [0]
    late.save(force_insert=True)
    monkeypatch.setattr(readers, "ABSENT_SECONDS", 0.0)
    client.run_until_idle()
    assert bodies(seen) == [0, 1]
    assert client.feed.reader.missed == 0


@pytest.mark.usefixtures("prices")
def test_after_a_truncate_a_client_goes_on_with_what_is_sent_next(start, seen, caplog, monkeypatch):
    monkeypatch.setattr(readers, "ABSENT_SECONDS", 0.0)
    client = start()
    send_prices(*range(50))
    client.worker.step()
    Message.objects.all().delete()
    send_prices("next")
    client.run_until_idle()
    assert bodies(seen) == [*range(10), "next"]
    assert client.feed.reader.missed == 40


@pytest.mark.usefixtures("prices")
def test_one_partition_that_cannot_be_read_does_not_hold_up_another(start, seen):
    client = start()
    added = grow()
    send_many([Outgoing("prices", n, partition=n % 2) for n in range(4)])
    sequence("default")
    Message.objects.filter(partition=added, offset=0).delete()
    client.run_until_idle()
    assert bodies(seen) == [0, 2]


# --- another log ------------------------------------------------------------------------------


def restored(to: int) -> None:
    """As after a restore from a backup that had ``to`` messages; time has passed since.

    Every process that sequences has begun after it: one from before would let the log jump.
    """
    remembered.forget()
    Message.objects.filter(offset__gte=to).delete()
    Message.objects.update(sequenced_at=UtcNow(-HOUR))
    Partition.objects.update(next_offset=to, last_sequenced_at=UtcNow(-HOUR))


def noted_long_ago(file) -> None:
    """The client's last message was sequenced half an hour ago, in the log that is lost."""
    position = written()["0"]
    (ago,) = Topic.objects.annotate(t=UtcNow(-HOUR / 2)).values_list("t", flat=True)
    text = file.read_text().replace(position["sequenced_at"], ago.isoformat())
    file.write_text(text)


@pytest.mark.usefixtures("prices")
def test_a_restored_database_is_noticed_and_what_was_sent_since_is_read(start, seen, caplog):
    send_prices(*range(10))
    client = start()
    client.run_until_idle()
    client.close()
    noted_long_ago(client.feed._file.path)
    restored(to=6)
    send_prices("new 6", "new 7")
    client = start()
    (told,) = missed(caplog)
    assert told.startswith("cache: prices/0 is not the log that was read up to offset 10")
    assert "Going on at offset 6 (the log has 0 … 7)" in told
    client.run_until_idle()
    assert bodies(seen)[10:] == ["new 6", "new 7"]
    assert offsets() == {0: 8}


@pytest.mark.usefixtures("prices")
def test_the_clock_of_a_restored_server_may_be_behind(start, seen):
    """What was sequenced up to a minute before the last message that was read is read again."""
    send_prices(*range(10))
    client = start()
    client.run_until_idle()
    client.close()
    noted_long_ago(client.feed._file.path)
    restored(to=6)
    send_prices("61 s before", "59 s before")
    for offset, seconds in ((6, 61), (7, 59)):
        ago = UtcNow(-HOUR / 2 - timedelta(seconds=seconds))
        Message.objects.filter(offset=offset).update(sequenced_at=ago)
    start().run_until_idle()
    assert bodies(seen)[10:] == ["59 s before"]


@pytest.mark.usefixtures("prices")
def test_a_restored_database_is_noticed_when_it_has_outgrown_the_position(start, seen, caplog):
    """The offset exists again, and may even have the same id: the instant is another one."""
    send_prices(*range(10))
    client = start()
    client.run_until_idle()
    client.close()
    noted_long_ago(client.feed._file.path)
    ids = list(Message.objects.order_by("offset").values_list("pk", flat=True))
    restored(to=6)
    send_prices(*(f"new {n}" for n in range(6, 14)))
    for offset in range(6, 10):
        Message.objects.filter(offset=offset).update(id=ids[offset])
    client = start()
    assert len(missed(caplog)) == 1
    client.run_until_idle()
    assert bodies(seen)[10:] == [f"new {n}" for n in range(6, 14)]


@pytest.mark.usefixtures("prices")
def test_a_database_that_is_restored_while_the_client_runs_is_noticed(start, seen, caplog):
    client = start()
    send_prices(*range(10))
    client.run_until_idle()
    restored(to=6)
    Message.objects.update(sequenced_at=UtcNow(-HOUR))
    ends = {row.pk: row.next_offset for row in Partition.objects.all()}
    assert client.feed.reader.behind(ends)
    send_prices("new")
    client.run_until_idle()
    assert len(missed(caplog)) == 1
    assert bodies(seen)[10:] == ["new"]


@pytest.mark.usefixtures("prices")
def test_a_new_connection_is_looked_at_anew(start, seen, caplog):
    """The server behind it may be another one, whose log has grown past the position."""
    client = start()
    send_prices(*range(10))
    client.run_until_idle()
    restored(to=6)
    Message.objects.update(sequenced_at=UtcNow(-HOUR))
    send_prices(*(f"new {n}" for n in range(6, 14)))
    connection.close()
    client.run_until_idle()
    assert len(missed(caplog)) == 1
    assert bodies(seen)[10:] == [f"new {n}" for n in range(6, 14)]


@pytest.mark.usefixtures("prices")
def test_what_was_read_after_a_lost_connection_is_not_handed_over_unseen(start, seen, caplog):
    """The connection breaks, the database is restored, and the read is repeated there."""
    client = start()
    send_prices(*range(30))
    client.worker.step()

    def restore(execute):
        restored(to=6)
        send_prices(*(f"new {n}" for n in range(6, 40)))
        raise OperationalError(2006, "Server has gone away")

    with statements(Once("`body`", restore)):
        client.run_until_idle()
    assert bodies(seen)[10:] == [f"new {n}" for n in range(6, 40)]
    assert len(missed(caplog)) == 1


@pytest.mark.usefixtures("prices")
def test_a_topic_that_was_made_anew_is_read_from_its_beginning(start, seen, caplog):
    send_prices(*range(10))
    client = start()
    client.run_until_idle()
    client.close()
    noted_long_ago(client.feed._file.path)
    restored(to=0)
    send_prices("a", "b")
    start().run_until_idle()
    assert len(missed(caplog)) == 1
    assert bodies(seen)[10:] == ["a", "b"]


@pytest.mark.usefixtures("clean_registry")
def test_a_position_that_knows_no_message_goes_back_to_the_first_kept_offset(start, seen, caplog):
    consumer("prices", group="cache", mode="broadcast")(seen.append)
    send_prices(*range(10))
    start().close()
    (file,) = files()
    position = written()["0"]
    text = file.read_text().replace(f'"{position["sequenced_at"]}"', "null")
    file.write_text(text.replace(f'"message_id": {position["message_id"]}', '"message_id": null'))
    restored(to=6)
    start().run_until_idle()
    assert bodies(seen) == list(range(6))
    assert len(missed(caplog)) == 1


@pytest.mark.usefixtures("prices")
def test_what_a_rewound_log_leaves_out_is_passed_and_not_missed(start, seen, caplog):
    client = start()
    send_prices(*range(10))
    client.run_until_idle()
    rewind = rewinds.jump(Partition.objects.get().pk, End(10 + 5, 0), "default")
    assert rewind
    caplog.clear()
    send_prices("new")
    client.run_until_idle()
    assert missed(caplog) == []
    assert [(m.offset, m.epoch) for m in seen[9:]] == [(9, 0), (rewind.next_offset, 1)]
    assert offsets() == {0: rewind.next_offset + 1}


@pytest.mark.usefixtures("prices")
def test_a_purge_of_the_message_before_the_position_is_no_restore(start, seen, caplog):
    send_prices(*range(10))
    client = start()
    client.run_until_idle()
    client.close()
    purge(below=10)
    send_prices("next")
    start().run_until_idle()
    assert missed(caplog) == []
    assert bodies(seen)[10:] == ["next"]


@pytest.mark.mysql
@pytest.mark.usefixtures("prices")
def test_a_replica_that_is_late_is_not_taken_for_a_restored_database(
    start, seen, caplog, monkeypatch
):
    """A proxy may send plain reads to it; a locking read goes to the primary."""
    client = start()
    send_prices(*range(10))
    client.run_until_idle()
    partitions = Log.partitions

    def late(log):
        found = partitions(log)
        for row in found:
            row.next_offset = 4
        return found

    monkeypatch.setattr(Log, "partitions", late)
    assert client.worker.step() > 0
    assert missed(caplog) == []
    assert offsets() == {0: 10}


# --- time → offset ----------------------------------------------------------------------------


@pytest.mark.parametrize("gone", [[], [0, 1], [4, 5, 6], [9]])
def test_the_first_message_since_an_instant_is_found_by_halves(gone):
    send_prices(*range(10))
    noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    times = [noon + HOUR * (offset // 2) for offset in range(10)]  # two of each instant
    for offset in range(10):
        Message.objects.filter(offset=offset).update(sequenced_at=times[offset])
    Message.objects.filter(offset__in=gone).delete()
    row = Partition.objects.get()
    for offset in range(10):
        expected = next((o for o in range(offset // 2 * 2, 10) if o not in gone), 10)
        found = offset_at(row, times[offset])
        kept = [o for o in range(found, 10) if o not in gone]
        assert (kept[0] if kept else 10) == expected
    assert offset_at(row, times[0] - HOUR) == 0


# --- what is in force -------------------------------------------------------------------------


@pytest.mark.usefixtures("prices")
def test_a_paused_group_and_an_unreadable_topic_are_not_read(start, seen):
    client = start()
    send_prices(0)
    Topic.objects.update(access=Access.WRITE_ONLY)
    assert client.worker.step() > 0
    assert seen == []
    Topic.objects.update(access=Access.READ_WRITE)
    client.feed._fresh_until = 0
    client.feed.group.topic.groups.all().pause()
    assert client.worker.step() > 0
    assert seen == []
