"""send(), send_many(), asend(): what is stored, what it costs, and what is told about it."""

from __future__ import annotations

import asyncio
import enum
import os
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation
from django.db import OperationalError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from streams import (
    Outgoing,
    ReceivedMessage,
    SendOutcomeUnknown,
    asend,
    cancel,
    consumer,
    runtime_settings,
    send,
    send_many,
)
from streams.errors import InvalidName, StreamsError, SynchronousOnly, TopicDenied
from streams.log import topics
from streams.log.sequencer import sequence
from streams.models import IMMEDIATE, Access, Message, Topic
from streams.operate.topics import create
from streams.produce import access, identity, insert
from streams.rules.names import MAX_PRODUCER
from streams.testing import drain, sent
from tests.hostapp.models import Order
from tests.rows import nothing_written

pytestmark = pytest.mark.django_db(transaction=True)


class RolledBack(Exception):
    pass


def statements(captured):
    """What was executed, but for Django's own BEGIN, COMMIT and savepoints."""
    own = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE")
    return [query["sql"] for query in captured if not query["sql"].startswith(own)]


def bodies(topic="orders"):
    return [message.body for message in sent(topic)]


# --- one message ------------------------------------------------------------------------------


def test_everything_that_is_sent_arrives(clean_registry):
    seen: list[ReceivedMessage] = []
    consumer("orders", group="mail")(seen.append)
    sent_ = send("orders", {"n": 1}, key="schlüssel", tag="paid", headers={"a": "1", "ä": "😀"})
    drain()
    (received,) = seen
    assert received.message_id == sent_.message_id
    assert (received.topic, received.partition) == (sent_.topic, sent_.partition) == ("orders", 0)
    assert (received.key, received.tag) == ("schlüssel", "paid")
    assert received.headers == {"a": "1", "ä": "😀"}
    assert (received.group, received.offset, received.attempt) == ("mail", 0, 1)
    assert received.sequenced_at
    assert received.created_at <= received.sequenced_at
    assert received.created_at.tzinfo is UTC


def test_what_is_not_given_is_empty(clean_registry):
    seen: list[ReceivedMessage] = []
    consumer("orders", group="mail")(seen.append)
    send("orders")
    send("orders", headers={})
    drain()
    for received in seen:
        assert received.body is None
        assert (received.key, received.tag, received.headers) == (None, "", {})


def test_the_result_names_the_row():
    results = [send("orders", n) for n in range(3)]
    for n, result in enumerate(results):
        row = Message.objects.get(pk=result.message_id)
        assert bytes(row.body) == str(n).encode()
        assert row.offset is None


def test_the_producer_is_named_by_address_process_and_thread(in_thread):
    def name_of(result):
        return Message.objects.get(pk=result.message_id).producer

    me = f"@{os.getpid()}@{threading.current_thread().name}"
    first = name_of(send("orders", 1))
    assert first == identity.host() + me
    assert first == name_of(send_many([Outgoing("orders", 2)])[0])
    elsewhere = name_of(in_thread(send, "orders", 3).result(10))
    assert elsewhere.startswith(f"{identity.host()}@{os.getpid()}@test")
    assert elsewhere != first


def test_the_address_is_one_that_others_know(monkeypatch):
    class Probe(socket.socket):
        """The routing table of another machine."""

        def connect(self, address):
            if not route:
                raise OSError("the network is unreachable")

        def getsockname(self):
            return route, 9

    def host():
        monkeypatch.setattr(identity, "_host", None)
        return identity.host()

    monkeypatch.setattr(socket, "socket", Probe)
    monkeypatch.setattr(socket, "gethostname", lambda: "web-1")
    route = "10.0.0.7"
    assert host() == "10.0.0.7"
    route = ""
    assert host() == "web-1"


def test_no_name_server_is_asked_for_the_address(monkeypatch):
    """One that does not answer would hold up the first send of each process."""

    def ask(*_arguments):
        raise AssertionError("a name server was asked")

    for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr", "getfqdn"):
        monkeypatch.setattr(socket, name, ask)
    monkeypatch.setattr(identity, "_host", None)
    assert identity.host()


@pytest.mark.slow
def test_a_forked_process_gives_its_own_id(spawn):
    child = spawn("""
import os
from django.db import connections
from streams import send
send("orders", os.getpid())
connections.close_all()
pid = os.fork()
send("orders", os.getpid())
connections.close_all()
if pid:
    os.waitpid(pid, 0)
""")
    child.succeed()
    rows = Message.objects.all()
    assert len({row.producer for row in rows}) == 2
    for row in rows:
        assert row.producer.split("@")[1] == bytes(row.body).decode()


def test_a_thread_name_of_any_length_is_cut():
    results = []

    def run():
        from django.db import connection

        results.append(send("orders", 1))
        connection.close()

    thread = threading.Thread(target=run, name="😀" * 500)
    thread.start()
    thread.join()
    assert len(Message.objects.get().producer) == MAX_PRODUCER


def test_the_topics_that_a_send_may_write_to_are_those_of_the_model():
    assert {Access.READ_WRITE, Access.WRITE_ONLY} == access.WRITABLE


# --- what it costs ----------------------------------------------------------------------------


@pytest.fixture
def warm():
    """What a process has read once it has sent: the settings and the topic."""
    send("orders", "warm")
    Message.objects.all().delete()


def test_a_send_outside_a_transaction_is_one_autocommitted_insert(warm):
    with CaptureQueriesContext(connection) as captured:
        send("orders", 1, key="k", headers={"a": "b"})
    (query,) = [query["sql"] for query in captured]  # no BEGIN, no COMMIT
    assert query.startswith("INSERT INTO `ems_msg`")
    with CaptureQueriesContext(connection) as captured:
        send("orders", 1, delay=10)
        send("orders", 1, deliver_at=datetime(2030, 1, 1, tzinfo=UTC))
    assert len(captured) == 2


def test_a_send_in_a_transaction_is_one_insert(warm):
    with transaction.atomic():
        with CaptureQueriesContext(connection) as captured:
            send("orders", 1)
        assert len(captured) == 1


def test_a_list_is_one_insert(warm):
    send_many([Outgoing("orders", n) for n in range(2)])  # MySQL is asked for the step of the ids
    with CaptureQueriesContext(connection) as captured:
        send_many([Outgoing("orders", n) for n in range(100)])
    queries = [query["sql"] for query in captured]
    assert [query[:22] for query in queries][:1] == ["INSERT INTO `ems_msg` "]
    assert len(queries) == 1


def test_a_list_longer_than_a_chunk_is_one_transaction(warm):
    send_many([Outgoing("orders", n) for n in range(2)])
    with CaptureQueriesContext(connection) as captured:
        send_many([Outgoing("orders", n) for n in range(insert.CHUNK_ROWS + 1)])
    inserts = [sql for sql in statements(captured) if sql.startswith("INSERT")]
    assert len(inserts) == 2
    assert len(statements(captured)) == 2


def test_an_empty_list_costs_and_writes_nothing(warm):
    with CaptureQueriesContext(connection) as captured, nothing_written():
        pass
    counting = len(captured)
    with CaptureQueriesContext(connection) as captured, nothing_written():
        assert send_many([]) == []
        assert send_many(iter(())) == []
    assert len(captured) == counting


# --- many messages ----------------------------------------------------------------------------


def assert_in_order(results, expected):
    """Each result is the row of its message, and the ids rise in the order of the list."""
    ids = [result.message_id for result in results]
    assert all(one < two for one, two in pairwise(ids))
    rows = Message.objects.in_bulk(ids)
    assert [bytes(rows[id_].body) for id_ in ids] == expected


@pytest.mark.parametrize("count", [1, 2, 499, 500, 501, 1203])
def test_ids_are_those_of_the_rows_in_the_order_of_the_list(count):
    results = send_many(Outgoing("orders", str(n)) for n in range(count))
    assert_in_order(results, [str(n).encode() for n in range(count)])
    assert Message.objects.count() == count


def test_large_bodies_are_sent_in_chunks_that_the_server_takes(monkeypatch):
    monkeypatch.setattr(insert, "CHUNK_BYTES", 1000)
    expected = [bytes([n]) * size for n, size in enumerate([400, 700, 299, 5000, 1, 999, 1, 1000])]
    with CaptureQueriesContext(connection) as captured:
        results = send_many([Outgoing("orders", body) for body in expected])
    inserts = [sql for sql in statements(captured) if sql.startswith("INSERT INTO `ems_msg`")]
    assert len(inserts) == 6  # 400 | 700 299 | 5000 | 1 999 | 1 | 1000
    assert_in_order(results, expected)


def test_many_large_headers_are_sent_in_chunks_too(monkeypatch):
    monkeypatch.setattr(insert, "CHUNK_BYTES", 1000)
    with CaptureQueriesContext(connection) as captured:
        send_many([Outgoing("orders", headers={"a": "x" * 600}) for _ in range(3)])
    inserts = [sql for sql in statements(captured) if sql.startswith("INSERT INTO `ems_msg`")]
    assert len(inserts) == 3


def test_each_message_of_a_list_keeps_what_is_its_own():
    soon = datetime(2031, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
    send_many(
        [
            Outgoing("orders", 1, key="a"),
            Outgoing("bills", b"2", tag="t", deliver_at=soon),
            Outgoing("orders", "3", headers={"h": "v"}),
        ]
    )
    assert sent("orders") == [
        Outgoing("orders", 1, key="a"),
        Outgoing("orders", "3", headers={"h": "v"}),
    ]
    assert sent("bills") == [Outgoing("bills", b"2", tag="t", deliver_at=soon)]


def test_results_name_the_topic_of_their_message():
    results = send_many([Outgoing("a"), Outgoing("b"), Outgoing("a")])
    assert [result.topic for result in results] == ["a", "b", "a"]
    assert {result.partition for result in results} == {0}


def test_concurrent_lists_and_sends_do_not_get_each_others_ids(in_thread):
    start = threading.Barrier(6)

    def many(sender):
        start.wait(30)
        mine: list[tuple[int, str]] = []
        for turn in range(5):
            expected = [f"{sender} {turn} {n}" for n in range(120)]
            results = send_many([Outgoing("orders", body) for body in expected])
            mine += zip([result.message_id for result in results], expected, strict=True)
        return mine

    def one(sender):
        start.wait(30)
        return [(send("orders", f"{sender} {n}").message_id, f"{sender} {n}") for n in range(60)]

    send("orders", "warm")
    futures = [in_thread(many if sender % 2 else one, sender) for sender in range(6)]
    told = dict(pair for future in futures for pair in future.result(60))
    assert len(told) == 3 * 5 * 120 + 3 * 60
    rows = Message.objects.exclude(body=b"warm").values_list("pk", "body")
    assert {pk: bytes(body).decode() for pk, body in rows} == told


@pytest.mark.parametrize("bad", [0, 1, 750, 1199])
def test_one_bad_message_among_many_and_none_is_sent(bad):
    messages = [Outgoing("orders", n) for n in range(1200)]
    messages[bad] = Outgoing("orders", {1, 2})
    send("orders", 0)
    with nothing_written(), pytest.raises(StreamsError):
        send_many(messages)


def test_a_failure_in_a_later_chunk_takes_the_earlier_ones_back(monkeypatch):
    send("orders", 0)
    insert_chunk = insert.insert_chunk
    calls = []

    def fail_the_third_time(alias, chunk):
        calls.append(len(chunk))
        if len(calls) == 3:
            raise OperationalError(1114, "The table is full")
        return insert_chunk(alias, chunk)

    monkeypatch.setattr(insert, "insert_chunk", fail_the_third_time)
    messages = [Outgoing("orders", n) for n in range(1200)]
    with nothing_written(), pytest.raises(OperationalError):
        send_many(messages)
    assert calls == [500, 500, 200]
    calls.clear()
    with transaction.atomic():
        Order.objects.create(number="1")
        with nothing_written(), pytest.raises(OperationalError):
            send_many(messages)
        send("orders", 1)
    # The transaction of the caller, who has caught the error, is whole.
    assert Order.objects.count() == 1
    assert bodies() == [0, 1]


def test_a_source_that_fails_halfway_sends_nothing():
    def messages():
        yield Outgoing("orders", 1)
        raise RolledBack

    with nothing_written(), pytest.raises(RolledBack):
        send_many(messages())


# --- time -------------------------------------------------------------------------------------


def due_of(result):
    return Message.objects.get(pk=result.message_id).due_at


@pytest.mark.parametrize(
    "when",
    [
        {},
        {"delay": 0},
        {"delay": 0.0},
        {"delay": timedelta(0)},
        {"deliver_at": datetime(2001, 1, 1, tzinfo=UTC)},
        {"deliver_at": datetime(1960, 1, 1, tzinfo=UTC)},
        {"deliver_at": datetime(1, 1, 1, tzinfo=UTC)},
        {"deliver_at": datetime(1970, 1, 1, tzinfo=UTC)},
        {"deliver_at": datetime(2001, 1, 1, tzinfo=timezone(timedelta(hours=14)))},
    ],
    ids=str,
)
def test_no_delay_and_a_time_in_the_past_mean_at_once(when):
    assert due_of(send("orders", 1, **when)) == IMMEDIATE
    assert due_of(send_many([Outgoing("orders", 2, **when)])[0]) == IMMEDIATE
    assert sequence("default").sequenced == 2


def test_a_time_that_was_a_moment_ago_means_at_once():
    a_moment_ago = datetime.now(UTC) - timedelta(seconds=1)
    assert due_of(send("orders", 1, deliver_at=a_moment_ago)) == IMMEDIATE


@pytest.mark.parametrize(
    "zone", [UTC, timezone(timedelta(hours=-12)), ZoneInfo("Asia/Shanghai")], ids=str
)
@pytest.mark.parametrize("microsecond", [0, 1, 500_000, 999_999])
def test_an_instant_is_kept_to_the_microsecond_whatever_its_zone(zone, microsecond):
    when = datetime(2031, 7, 1, 23, 30, 1, microsecond, tzinfo=zone)
    assert due_of(send("orders", 1, deliver_at=when)) == when
    assert due_of(send_many([Outgoing("orders", 1, deliver_at=when)])[0]) == when
    assert sequence("default").sequenced == 0


def test_the_last_instant_there_is_can_be_asked_for():
    when = datetime.max.replace(tzinfo=UTC)
    assert due_of(send("orders", 1, deliver_at=when)) == when
    assert sequence("default").sequenced == 0


@pytest.mark.parametrize(
    ("delay", "duration"),
    [
        (60, timedelta(minutes=1)),
        (0.5, timedelta(seconds=0.5)),
        (timedelta(days=400), timedelta(days=400)),
        (timedelta(days=36525), timedelta(days=36525)),
    ],
    ids=str,
)
def test_a_delay_counts_from_the_clock_of_the_database(delay, duration):
    for result in (
        send("orders", 1, delay=delay),
        send_many([Outgoing("orders", 1, delay=delay)])[0],
    ):
        row = Message.objects.get(pk=result.message_id)
        assert abs(row.due_at - row.created_at - duration) <= timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("use_tz", "zone"), [(True, "UTC"), (True, "Asia/Shanghai"), (False, "America/Los_Angeles")]
)
def test_times_are_right_whatever_the_zone_of_the_project(use_tz, zone, settings, clean_registry):
    """The MariaDB of the tests runs with +08:00 besides."""
    settings.USE_TZ = use_tz
    settings.TIME_ZONE = zone
    seen: list[ReceivedMessage] = []
    consumer("orders", group="mail")(seen.append)
    before = datetime.now(UTC) - timedelta(seconds=1)
    now = send("orders", 1)
    soon = send("orders", 2, delay=3600)
    at = datetime(2031, 1, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    then = send("orders", 3, deliver_at=at)
    just_before = datetime.now(UTC) - timedelta(seconds=0.1)
    send("orders", 4, deliver_at=just_before)
    drain()
    after = datetime.now(UTC) + timedelta(seconds=1)
    assert [m.body for m in seen] == [1, 4]
    for received in seen:
        assert received.sequenced_at
        assert before <= received.created_at <= received.sequenced_at <= after
    row = Message.objects.get(pk=now.message_id)
    assert row.sequenced_at
    assert before <= row.created_at <= row.sequenced_at <= after
    an_hour = timedelta(hours=1)
    assert before + an_hour <= due_of(soon) <= after + an_hour
    assert due_of(then) == at


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/Los_Angeles"])
def test_times_are_right_whatever_the_zone_of_the_database_alias(zone, monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "TIME_ZONE", zone)
    # What Django has worked out for this connection.
    for name in ("timezone", "timezone_name"):
        connection.__dict__.pop(name, None)
    try:
        result = send("orders", 1)
        at = datetime(2031, 1, 1, 12, tzinfo=UTC)
        assert due_of(send("orders", 2, deliver_at=at)) == at
        row = Message.objects.get(pk=result.message_id)
        assert abs(row.created_at - datetime.now(UTC)) < timedelta(seconds=30)
        assert Message.objects.filter(due_at=at).count() == 1
        assert Message.objects.filter(due_at__lt=at).count() == 1
    finally:
        for name in ("timezone", "timezone_name"):
            connection.__dict__.pop(name, None)


# --- transactions -----------------------------------------------------------------------------


def test_with_autocommit_off_a_send_waits_for_the_commit():
    send("orders", 0)
    transaction.set_autocommit(False)
    try:
        send("orders", 1)
        transaction.rollback()
        send("orders", 2)
        send_many([Outgoing("orders", 3)])
        transaction.commit()
        send("orders", 4)
        send_many([Outgoing("orders", n) for n in range(501)])
        transaction.rollback()
    finally:
        transaction.set_autocommit(True)
    assert bodies() == [0, 2, 3]


def test_with_autocommit_off_redis_is_no_hindrance(ems_settings, monkeypatch):
    ems_settings(REDIS="default")
    monkeypatch.setattr("streams.produce.send.announce", lambda using, topics: None)
    transaction.set_autocommit(False)
    try:
        send("orders", 1)
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert bodies() == [1]


def test_consumers_are_woken_after_the_commit_and_only_then(ems_settings, monkeypatch):
    woken: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(
        "streams.produce.send.announce",
        lambda using, topics: woken.append((using, sorted(topics))),
    )
    send("orders", 1)
    assert not woken  # without Redis nothing is registered
    ems_settings(REDIS="default")
    send("orders", 1)
    assert woken == [("default", ["orders"])]
    with transaction.atomic():
        send("orders", 2)
        send_many([Outgoing("orders", 3), Outgoing("mails", 3)])
        assert len(woken) == 1
    assert woken[1:] == [("default", ["orders"]), ("default", ["mails", "orders"])]
    with pytest.raises(RolledBack), transaction.atomic():
        send("orders", 4)
        raise RolledBack
    assert len(woken) == 3


def test_a_wake_up_that_fails_does_not_fail_the_send(ems_settings, monkeypatch, caplog):
    ems_settings(REDIS="default")

    def fail(alias, topics):
        raise OSError("no Redis")

    monkeypatch.setattr("streams.produce.send.announce", fail)
    send("orders", 1)
    with transaction.atomic():
        send("orders", 2)
    assert bodies() == [1, 2]


# --- unknown outcomes -------------------------------------------------------------------------


@pytest.mark.mysql
class TestALostReply:
    def test_says_that_nobody_knows_and_sends_nothing_twice(self, proxied):
        send("orders", "warm")
        proxied.lose_reply_to(b"INSERT INTO `ems_msg`")
        with pytest.raises(SendOutcomeUnknown):
            send("orders", 1)
        connection.close()
        assert proxied.fired
        assert bodies() == ["warm", 1]

    def test_before_the_server_has_seen_the_message_looks_the_same(self, proxied):
        send("orders", "warm")
        proxied.cut_before(b"INSERT INTO `ems_msg`")
        with pytest.raises(SendOutcomeUnknown):
            send("orders", 1)
        connection.close()
        assert bodies() == ["warm"]

    @pytest.mark.parametrize("count", [3, 501])
    def test_of_a_list_leaves_all_or_nothing(self, proxied, count):
        send("orders", "warm")
        messages = [Outgoing("orders", n) for n in range(count)]
        last = b"COMMIT" if count > insert.CHUNK_ROWS else b"INSERT INTO `ems_msg`"
        proxied.lose_reply_to(last)
        with pytest.raises(SendOutcomeUnknown):
            send_many(messages)
        connection.close()
        assert bodies() == ["warm", *range(count)]
        proxied.cut_before(last)
        with pytest.raises(SendOutcomeUnknown):
            send_many(messages)
        connection.close()
        assert bodies() == ["warm", *range(count)]

    def test_in_a_transaction_is_the_database_error_that_it_is(self, proxied):
        """There the outcome is known: the server rolls back what was not committed."""
        send("orders", "warm")
        for send_one in (send, lambda topic, body: send_many([Outgoing(topic, body)])):
            proxied.lose_reply_to(b"INSERT INTO `ems_msg`")
            with pytest.raises(OperationalError, match="2013"), transaction.atomic():
                Order.objects.create(number="1")
                send_one("orders", 1)
            connection.close()
        assert len(proxied.fired) == 2
        assert bodies() == ["warm"]
        assert not Order.objects.exists()

    def test_with_autocommit_off_is_the_database_error_that_it_is(self, proxied):
        send("orders", "warm")
        transaction.set_autocommit(False)
        proxied.lose_reply_to(b"INSERT INTO `ems_msg`")
        with pytest.raises(OperationalError, match="2013"):
            send("orders", 1)
        connection.close()
        assert bodies() == ["warm"]

    @pytest.mark.parametrize("table", [b"`ems_partition`", b"`ems_system_config`"])
    def test_to_a_look_at_the_topic_or_the_settings_is_not_about_the_message(self, proxied, table):
        send("orders", "warm")
        runtime_settings.forget()
        topics.forget()
        proxied.lose_reply_to(table)
        with pytest.raises(OperationalError, match="2013"):
            send("orders", 1)
        connection.close()
        assert proxied.fired
        assert bodies() == ["warm"]

    def test_to_the_creation_of_a_topic_is_looked_up_and_the_message_sent(self, proxied):
        proxied.lose_reply_to(b"COMMIT")
        with transaction.atomic():
            proxied_before = list(proxied.fired)
            send("orders", 1)
            assert not proxied_before
            assert proxied.fired == [b"COMMIT"]
        assert Topic.objects.get().partitions.count() == 1
        assert bodies() == [1]


# --- async ------------------------------------------------------------------------------------


async def send_from_async_code():
    """What an async view does: its connections belong to its thread, and are closed with it."""
    from asgiref.sync import sync_to_async
    from django.db import connections

    try:
        results = await asyncio.gather(*(asend("orders", n, key="k") for n in range(5)))
        with pytest.raises(TopicDenied):
            await asend("denied", 1)
        return results
    finally:
        await sync_to_async(connections.close_all)()


def test_async_code_sends_without_blocking_the_loop():
    Topic.objects.create(name="denied", access=Access.DENIED)
    results = asyncio.run(send_from_async_code())
    assert sorted(bodies()) == [0, 1, 2, 3, 4]
    assert len({result.message_id for result in results}) == 5
    assert {row.key for row in Message.objects.all()} == {"k"}


@pytest.mark.mysql
def test_asend_joins_no_transaction_of_the_code_that_runs_the_loop():
    Topic.objects.create(name="denied", access=Access.DENIED)
    with pytest.raises(RolledBack), transaction.atomic():
        Order.objects.create(number="1")
        asyncio.run(send_from_async_code())
        raise RolledBack
    assert not Order.objects.exists()
    assert len(bodies()) == 5


def test_the_sync_functions_refuse_to_block_a_loop():
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: send("orders", 1), r"send\(\).*asend\("),
        (lambda: send("orders", 1, dedup_key="k"), r"send\(\).*asend\("),
        (lambda: send_many([Outgoing("orders", 1)]), r"send_many\(\).*sync_to_async\(send_many\)"),
        (lambda: cancel(1), r"cancel\(\).*sync_to_async\(cancel\)"),
    ]

    async def mistake(call):
        call()

    send("orders", 1)  # what is cached now makes the next one no less wrong
    for call, says in calls:
        with nothing_written(), pytest.raises(SynchronousOnly, match=says) as caught:
            async_to_sync(mistake)(call)
        assert isinstance(caught.value, SynchronousOnlyOperation)  # as Django's own


def test_a_notebook_may_send_where_django_lets_it(monkeypatch):
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")

    async def cell():
        try:
            return send("orders", 1)
        finally:
            connections.close_all()  # in a loop Django has others than outside of it

    assert asyncio.run(cell()).message_id
    assert bodies() == [1]


class Sort(enum.Enum):
    BOOK = 7


class Number(int, enum.Enum):
    SEVEN = 7


@pytest.mark.parametrize(
    ("key", "text"),
    [(7, "7"), (-1, "-1"), (0, "0"), (Number.SEVEN, "7"), (UUID(int=7), str(UUID(int=7)))],
    ids=repr,
)
def test_a_key_may_be_an_int_or_a_uuid_and_is_its_text(key, text):
    create("orders", 8, "default")
    place = send("orders", 1, key=text).partition
    assert send("orders", 2, key=key).partition == place
    assert send_many([Outgoing("orders", 3, key=key)])[0].partition == place
    assert [message.key for message in sent("orders", key=key)] == [text] * 3
    assert not send("orders", 4, dedup_key=key).duplicate
    assert send("orders", 4, dedup_key=text).duplicate


@pytest.mark.parametrize("key", [True, 7.5, b"7", Sort.BOOK, 10**255, -(10**5000)], ids=type)
def test_any_other_key_is_refused(key):
    with nothing_written(), pytest.raises(InvalidName):
        send("orders", 1, key=key)
    with nothing_written(), pytest.raises(InvalidName):
        send("orders", 1, dedup_key=key)


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_a_session_is_asked_once_how_far_ids_are_apart():
    """After a reconnect it is asked again: it may be another server."""

    def sent_in_pairs() -> list[str]:
        seen: list[str] = []

        def note(execute, statement, *arguments):
            seen.append(statement)
            return execute(statement, *arguments)

        with connection.execute_wrapper(note):
            results = [r for _ in range(2) for r in send_many([Outgoing("orders", 1)] * 2)]
        ids = list(Message.objects.order_by("-pk").values_list("pk", flat=True)[:4])
        assert [r.message_id for r in results] == ids[::-1]
        return [statement for statement in seen if "auto_increment" in statement]

    send("orders", 1)
    connection.close()
    assert len(sent_in_pairs()) in (0, 1)  # 0: the server returns the ids
    assert sent_in_pairs() == []
    connection.close()
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION auto_increment_increment = 7")
    sent_in_pairs()
    connection.close()
