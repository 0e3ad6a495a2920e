"""The search by time, tag and key: it finds what is there, and reads a bounded number of rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext

from streams import Outgoing, send, send_many
from streams.errors import InvalidTarget, NaiveDatetime
from streams.log import search as module
from streams.log.search import (
    Criteria,
    Position,
    SearchResult,
    not_indexed,
    parse_position,
    position_text,
    search,
)
from streams.log.sequencer import sequence
from streams.management.commands import ems_messages
from streams.models import KeyEntry, Message, Partition, Topic, UtcNow
from streams.operate import key_index
from streams.operate.topic_deletion import TopicDeletion
from streams.operate.topics import create
from streams.retain.purge import Purge
from tests.commands.conftest import parsed, run  # noqa: F401 - fixtures
from tests.sessions import Session, Threads

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def sent(count: int, topic: str = "orders", **values: Any) -> None:
    """Send as many messages, with three keys and two tags in turn, and sequence them."""
    send_many(
        [Outgoing(topic, n, key=f"k{n % 3}", tag=f"t{n % 2}", **values) for n in range(count)]
    )
    sequence("default")


def looked_for(limit: int = 100, start: Position | None = None, **criteria: Any) -> SearchResult:
    partitions = list(Partition.objects.order_by("number"))
    return search(partitions, Criteria(**criteria), limit, "default", start)


def offsets(found: SearchResult) -> list[int | None]:
    return [message.offset for message in found.messages]


def all_offsets(limit: int, **criteria: Any) -> list[int | None]:
    """What a search finds in several steps."""
    found = looked_for(limit, **criteria)
    every = offsets(found)
    while not found.is_complete:
        found = looked_for(limit, parse_position(position_text(found.then)), **criteria)
        every += offsets(found)
    return every


@pytest.mark.parametrize("indexed", [False, True], ids=["read", "indexed"])
def test_messages_are_found_by_key_and_tag_the_newest_first(indexed: bool) -> None:
    Topic.objects.create(name="orders", index_keys=indexed)
    sent(12)
    assert offsets(looked_for(key="k1")) == [10, 7, 4, 1]
    assert offsets(looked_for(tag="t1")) == [11, 9, 7, 5, 3, 1]
    assert offsets(looked_for(tag="t1", key="k1")) == [7, 1]
    assert offsets(looked_for(key="k9")) == []
    for limit in (1, 2, 3):
        assert all_offsets(limit, key="k1") == [10, 7, 4, 1]
        assert all_offsets(limit, tag="t1", key="k1") == [7, 1]
        assert all_offsets(limit) == [*range(11, -1, -1)]
    assert KeyEntry.objects.count() == (12 if indexed else 0)


def test_messages_are_found_by_time() -> None:
    sent(10)
    for offset in range(10):
        at = UtcNow(timedelta(minutes=offset - 10))
        Message.objects.filter(offset=offset).update(sequenced_at=at)
    times: dict[Any, Any] = dict(Message.objects.values_list("offset", "sequenced_at"))
    assert offsets(looked_for(since=times[7])) == [9, 8, 7]
    assert offsets(looked_for(until=times[2])) == [1, 0]
    assert offsets(looked_for(since=times[2], until=times[8], key="k1")) == [7, 4]
    assert all_offsets(2, since=times[2], until=times[8], tag="t1") == [7, 5, 3]
    assert offsets(looked_for(since=times[9] + HOUR)) == []
    with pytest.raises(NaiveDatetime):
        looked_for(since=datetime(2026, 11, 20))  # noqa: DTZ001


def test_the_inbox_is_searched_unless_a_time_is_given() -> None:
    sent(2)
    later = send("orders", 3, key="k1", delay=60).message_id
    found = looked_for(key="k1")
    assert [m.pk for m in found.messages if m.offset is None] == [later]
    assert offsets(found) == [None, 1]
    assert offsets(looked_for(since=Message.objects.get(offset=0).sequenced_at)) == [1, 0]


def test_partitions_are_searched_together() -> None:
    create("orders", 4, "default")
    for n in range(40):
        send("orders", n, key=f"k{n}", tag="even" if n % 2 == 0 else "odd")
    sequence("default")
    partitions = list(Partition.objects.all())
    every: list[int] = []
    start: Position | None = None
    while start is None or start:
        found = search(partitions, Criteria(tag="even"), 7, "default", start)
        every += [message.pk for message in found.messages]
        start = found.then
    assert sorted(every) == sorted(Message.objects.filter(tag="even").values_list("pk", flat=True))


@pytest.mark.parametrize("limit", [2, 100])
def test_a_search_without_an_index_is_bounded_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(module, "SEARCHED", 5)
    monkeypatch.setattr(module, "ENTRIES", 5)
    sent(23)
    found = looked_for(limit, key="k1")
    assert offsets(found) == [22, 19]
    assert not found.is_complete
    assert found.left == (19 if limit == 2 else 18)
    assert all_offsets(limit, key="k1") == [22, 19, 16, 13, 10, 7, 4, 1]


def test_what_the_index_does_not_cover_is_read() -> None:
    sent(6)
    Topic.objects.update(index_keys=True)
    send("orders", 0)  # no key, no entry
    sent(6)
    assert (Partition.objects.get().keys_from, KeyEntry.objects.count()) == (6, 6)
    for limit in (1, 3, 100):
        assert all_offsets(limit, key="k1") == [11, 8, 4, 1]
    # Switched off, the index has holes from then on: it covers nothing any more.
    Topic.objects.update(index_keys=False)
    sent(3)
    assert Partition.objects.get().keys_from is None
    assert all_offsets(100, key="k1") == [14, 11, 8, 4, 1]
    Topic.objects.update(index_keys=True)
    sent(3)
    assert Partition.objects.get().keys_from == 16
    assert all_offsets(2, key="k1") == [17, 14, 11, 8, 4, 1]


def test_an_indexed_search_reads_no_other_message() -> None:
    Topic.objects.create(name="orders", index_keys=True)
    sent(50)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        looked_for(key="k1")
    reads = [query["sql"] for query in queries if "ems_msg" in query["sql"]]
    assert all("IN (" in sql or "IS NULL" in sql for sql in reads)


def test_the_index_of_keys_is_purged_with_its_messages() -> None:
    Topic.objects.create(name="orders", index_keys=True)
    sent(9)
    sent(3, topic="flights")
    Partition.objects.filter(topic__name="orders").update(first_offset=4)
    Purge("default").delete_below(Partition.objects.get(topic__name="orders"))
    assert sorted(KeyEntry.objects.values_list("offset", flat=True)) == [4, 5, 6, 7, 8]
    topic = Topic.objects.get(name="orders")
    deletion = TopicDeletion(topic, "default", force=True)
    assert deletion.contents()["indexed keys"] == 5
    deletion.close()
    deletion.finish()
    assert not KeyEntry.objects.exists()


def test_the_command_searches(parsed: Callable[..., Any], run: Callable[..., str]) -> None:  # noqa: F811
    create("orders", 2, "default")
    sent(20)
    key_of = {
        row["offset"]: row["key"]
        for row in parsed("ems_messages", "list", "orders", "--partition", "0")
    }
    assert len(key_of) < 20
    rows = parsed("ems_messages", "list", "orders", "--key", "k1", "--tag", "t1")
    assert {(row["key"], row["tag"]) for row in rows} == {("k1", "t1")}
    assert len(rows) == 4
    assert parsed("ems_messages", "list", "orders", "--until", "2026-01-01T00:00Z") == []
    for words, text in (
        (("--since", "2026-01-01T00:00"), "time zone"),
        (("--since", "12"), "not a time"),
        (("--partition", "2"), "no partition 2"),
        (("--resume", "soon"), "not where a search has stopped"),
    ):
        with pytest.raises(CommandError, match=text):
            run("ems_messages", "list", "orders", *words)


def test_the_command_says_where_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    sent(5)
    call_command("ems_messages", "list", "orders", "--limit", "2")
    said = capsys.readouterr()
    position = said.err.split()[-1]
    assert "ems_topics index" not in said.err
    call_command("ems_messages", "list", "orders", "--limit", "3", "--resume", position)
    rest = capsys.readouterr()
    assert [line.split()[2] for line in rest.out.splitlines()[1:]] == ["2", "1", "0"]
    assert rest.err == ""


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_whoever_locks_the_topic_does_not_stop_the_sequencer(
    second_connection: Callable[..., Session],
) -> None:
    Topic.objects.create(name="orders", index_keys=True)
    send("orders", 1, key="k")
    other = second_connection()
    other.execute("BEGIN")
    other.execute("SELECT * FROM ems_topic FOR UPDATE")
    assert sequence("default").sequenced == 1
    other.execute("ROLLBACK")
    assert KeyEntry.objects.get().key == "k"


@pytest.mark.parametrize("text", ["", "1", "1@", "@1", "1@2,", "1@2;3@4", "-1@2"])
def test_a_position_is_checked(text: str) -> None:
    with pytest.raises(InvalidTarget):
        parse_position(text)


def test_the_index_is_completed_for_messages_that_were_there_before(
    monkeypatch: pytest.MonkeyPatch,
    parsed: Callable[..., Any],  # noqa: F811
) -> None:
    monkeypatch.setattr(key_index, "AT_ONCE", 4)
    create("orders", 2, "default")
    sent(20)
    send("orders", 1)  # no key, no entry
    sent(2, "flights")
    sequence("default")
    log = Message.objects.filter(partition__topic__name="orders")
    assert parsed("ems_topics", "index", "orders") == {"topic": "orders", "written": 20}
    assert KeyEntry.objects.count() == 20
    of_orders = Partition.objects.filter(topic__name="orders")
    assert set(of_orders.values_list("keys_from", flat=True)) == {0}
    assert Topic.objects.get(name="orders").index_keys
    with CaptureQueriesContext(connection) as queries:
        found = search(of_orders, Criteria(key="k1"), 100, "default")
    assert len(found.messages) == log.filter(key="k1").count()
    reads = [query["sql"] for query in queries if "ems_msg" in query["sql"]]
    assert all("IN (" in sql or "IS NULL" in sql for sql in reads)
    sent(3)
    assert KeyEntry.objects.count() == 23  # the sequencer goes on with it
    assert parsed("ems_topics", "index", "orders")["written"] == 0


def test_the_index_is_completed_over_what_is_left_of_an_earlier_one() -> None:
    Topic.objects.create(name="orders", index_keys=True)
    sent(6)
    Topic.objects.update(index_keys=False)
    sent(3)
    assert (Partition.objects.get().keys_from, KeyEntry.objects.count()) == (None, 6)
    Partition.objects.update(first_offset=2)  # purged up to there, and not deleted yet
    Topic.objects.update(index_keys=True)
    assert key_index.complete(Topic.objects.get(), "default") == 7
    assert Partition.objects.get().keys_from == 2
    assert sorted(KeyEntry.objects.values_list("offset", flat=True)) == [*range(9)]


def test_an_index_that_is_switched_off_meanwhile_is_not_completed() -> None:
    sent(3)
    assert key_index.complete(Topic.objects.get(), "default") == 0
    assert (Partition.objects.get().keys_from, KeyEntry.objects.count()) == (None, 0)


def test_entries_that_do_not_reach_as_far_as_was_read_are_rolled_back() -> None:
    Topic.objects.create(name="orders")
    sent(6)
    Topic.objects.update(index_keys=True)
    Partition.objects.update(keys_from=6)
    old = Partition.objects.get()
    Partition.objects.update(keys_from=None)  # a pass while the index was off
    with pytest.raises(IntegrityError):
        key_index._step(old, "default")
    assert not KeyEntry.objects.exists()


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_two_runs_complete_the_index_once(
    in_thread: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_index, "AT_ONCE", 3)
    sent(60)
    Topic.objects.update(index_keys=True)
    topic = Topic.objects.get()
    both = [in_thread(key_index.complete, topic, "default") for _ in range(2)]
    assert sum(one.result(60) for one in both) == 60
    assert KeyEntry.objects.count() == 60
    assert Partition.objects.get().keys_from == 0


def test_the_command_goes_on_by_itself_up_to_a_bound_and_names_the_index(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "SEARCHED", 5)
    monkeypatch.setattr(module, "ENTRIES", 5)
    sent(23)
    call_command("ems_messages", "list", "orders", "--key", "k1")
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1 + 8
    assert said.err == ""
    monkeypatch.setattr(ems_messages, "STEPS", 2)
    call_command("ems_messages", "list", "orders", "--key", "k1")
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1 + 4
    assert "--resume" in said.err
    assert said.err.endswith("python manage.py ems_topics index orders\n")


def test_the_topics_that_lack_an_index_are_named_those_with_most_messages_first() -> None:
    sent(3)
    sent(5, topic="flights")
    create("empty", 1, "default")
    partitions = Partition.objects.select_related("topic")
    assert not_indexed(partitions.all()) == ["flights", "orders"]
    Partition.objects.filter(topic__name="flights").update(keys_from=1)
    assert not_indexed(partitions.all()) == ["orders", "flights"]
    Partition.objects.filter(topic__name="orders").update(first_offset=3)
    assert not_indexed(partitions.all()) == ["flights"]
