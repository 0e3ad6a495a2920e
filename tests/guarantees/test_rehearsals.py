"""A rehearsal says which messages would pass, and leaves nothing of its calls in any database."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import pytest
from django.apps import apps
from django.db import (
    IntegrityError,
    OperationalError,
    connection,
    connections,
    transaction,
)
from django.utils import timezone, translation

from streams import Outgoing, Reject, Retry, cancel, consumer, send, send_many
from streams.conf import database, working_on
from streams.consume import registry
from streams.errors import NotRehearsable
from streams.models import ConsumerGroup, DeadMessage, Message, Partition
from streams.operate.rehearsal import Rehearsal, rehearse
from streams.operate.replay import Span
from streams.testing import drain
from streams.wakeup import announce, channel
from tests.hostapp.models import Handled, Order
from tests.processes import Spawn

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("clean_registry"),
]

MESSAGES = 6
ALIASES = ("default", "other")


@pytest.fixture
def orders() -> None:
    """Six orders that the group "bill" has handled."""
    register(lambda message: None)
    send_many([Outgoing("orders", {"id": n}, f"k{n}", "web") for n in range(MESSAGES)])
    assert drain("bill").done == MESSAGES


def register(handler: Callable[[Any], Any], **options: Any) -> None:
    """Deploy another version of the handler."""
    registry._registered.clear()
    consumer("orders", group="bill", **{"rehearsable": True, **options})(handler)


def contents() -> dict[str, list[Any]]:
    return {
        f"{alias} {model._meta.db_table}": list(
            model._base_manager.using(alias).order_by("pk").values_list()
        )
        for alias in ALIASES
        for model in apps.get_models(include_auto_created=True)
        if model._meta.managed
    }


def group() -> ConsumerGroup:
    return ConsumerGroup.objects.select_related("topic").get(name="bill")


def run(end: int = MESSAGES, **options: Any) -> Rehearsal:
    """Rehearse the log up to ``end``, or letters; check that nothing has changed in any table."""
    partition = Partition.objects.select_related("topic").get(topic__name="orders")
    options.setdefault("spans", [] if "letters" in options else [Span(partition, 0, end)])
    before = contents()
    try:
        return rehearse(group(), "default", by="ann", **options)
    finally:
        assert contents() == before
        for alias in ALIASES:
            assert not connections[alias].in_atomic_block


@pytest.mark.parametrize("batch", [None, 6])
@pytest.mark.parametrize("ordered", [False, True])
def test_a_body_that_is_not_of_the_type_fails_alone(orders, batch, ordered):
    called: list[Any] = []

    @dataclass
    class Small:
        id: Literal[0, 1, 3, 5]

    ConsumerGroup.objects.update(ordered=ordered)
    register(called.append, batch=batch, ordered=ordered, body=Small)
    result = run()
    assert states(result) == "ppfpfp"
    assert result.messages[2].error.startswith("InvalidBody: $.id: invalid enum value 2")
    assert len(called) == (4 if batch is None else 1)


def states(result: Rehearsal) -> str:
    """Return the first letters of the states: "ppf" of two that pass, and one that fails."""
    return "".join(one.state[0] for one in result.messages)


def bill(message: Any) -> None:
    """Write to two databases and send; the last order fails."""
    order = Order.objects.create(number=message.body["id"], note="billed")
    Order.objects.using("other").create(number=message.body["id"])
    send("bills", {"order": order.pk}, key=message.key)
    transaction.on_commit(lambda: pytest.fail("a callback has run"))
    transaction.on_commit(lambda: pytest.fail("a callback has run"), using="other")
    if message.offset == MESSAGES - 1:
        raise ValueError("no account")


async def async_bill(message: Any) -> None:
    await Order.objects.acreate(number=message.body["id"])
    await asyncio.sleep(0)
    if message.offset == MESSAGES - 1:
        raise ValueError("no account")


def bill_all(messages: Sequence[Any]) -> dict[Any, BaseException]:
    Order.objects.bulk_create(Order(number=one.body["id"]) for one in messages)
    return {one: ValueError("no account") for one in messages if one.offset == MESSAGES - 1}


@pytest.mark.every_database
@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize(
    ("handler", "batch"), [(bill, None), (async_bill, None), (bill_all, 4)], ids=str
)
def test_each_message_is_judged_and_nothing_remains(
    orders: None, handler: Any, batch: int | None, atomic: bool
) -> None:
    register(handler, atomic=atomic, batch=batch)
    result = run()
    assert states(result) == "pppppf"
    assert [one.place for one in result.messages] == [f"orders/0@{n}" for n in range(MESSAGES)]
    assert [one.error for one in result.messages if one.error] == ["ValueError: no account"]
    assert all(0 < one.seconds < 10 for one in result.messages)
    assert (result.stopped, result.left_out) == ("", 0)


def test_a_batch_that_raises_fails_as_a_whole_and_the_next_one_is_called(orders: None) -> None:
    def all_or_none(messages: Sequence[Any]) -> None:
        if messages[0].offset == 0:
            raise Reject("the first batch")

    register(all_or_none, batch=4)
    assert states(run()) == "ffffpp"


@pytest.mark.every_database
def test_a_topic_that_is_missing_and_a_dedup_key_remain_nowhere(orders: None) -> None:
    def sends(message: Any) -> None:
        first = send("new", 1, dedup_key="once")
        assert send("new", 1, dedup_key="once").duplicate
        assert not first.duplicate
        assert cancel(send("new", 2, delay=timedelta(hours=1)).message_id) == "cancelled"

    register(sends)
    assert states(run()) == "p" * MESSAGES
    send("new", 1)  # no process remembers a topic that was never committed


@pytest.mark.redis
def test_no_consumer_is_woken(orders: None, ems_settings: Callable[..., None]) -> None:
    from django_redis import get_redis_connection

    ems_settings(REDIS="redis")
    register(lambda message: send("bills", 1))
    with get_redis_connection("redis").pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe(channel("default"))
        run()
        announce("default", ["the end"])
        while (found := heard.get_message(timeout=1)) is None:
            pass
    assert json.loads(found["data"]) == ["the end"]


@pytest.mark.mysql
@pytest.mark.every_database
@pytest.mark.parametrize(
    "statement", ["CREATE TABLE t (n INT)", "COMMIT", "TRUNCATE hostapp_order"]
)
def test_a_statement_that_commits_is_refused_before_it_runs(orders: None, statement: str) -> None:
    def commits(message: Any) -> None:
        Order.objects.create(number="written")
        if message.offset == 1:
            try:
                with connection.cursor() as cursor:
                    cursor.execute(f"/* a comment */ {statement}")
            except NotRehearsable:
                pass  # even a handler that goes on is not said to pass

    register(commits)
    result = run(3)
    assert states(result) == "pup"
    assert "ends the transaction" in result.messages[1].error


@pytest.mark.every_database
@pytest.mark.parametrize(
    "commits",
    [
        lambda: connection.commit(),
        lambda: connection.rollback(),
        lambda: connection.set_autocommit(True),
    ],
)
def test_a_handler_that_commits_by_itself_fails_and_nothing_is_committed(
    orders: None, commits: Callable[[], None]
) -> None:
    def handler(message: Any) -> None:
        Order.objects.create(number="written")
        commits()

    register(handler)
    result = run(2)
    assert states(result) == "ff"
    assert "TransactionManagementError" in result.messages[0].error


@pytest.mark.every_database
def test_a_transaction_that_ends_beneath_django_stops_the_rehearsal(orders: None) -> None:
    def ends(message: Any) -> None:
        connection.connection.rollback()

    register(ends)
    result = run()
    assert states(result) == "f"
    assert "ended the transaction" in result.stopped
    assert not result.all_pass


@pytest.mark.every_database
@pytest.mark.parametrize("atomic", [False, True])
def test_a_connection_that_the_handler_closes_commits_nothing(orders: None, atomic: bool) -> None:
    def closes(message: Any) -> None:
        Order.objects.create(number="written")
        connection.close()

    register(closes, atomic=atomic)
    result = run(2)
    assert result.stopped == ""
    assert len(result.messages) == 2


@pytest.mark.mysql
@pytest.mark.every_database
def test_a_write_to_a_table_without_transactions_is_refused(orders: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE hostapp_handled ENGINE = MyISAM")
    try:
        register(lambda message: Handled.objects.bulk_create([Handled(partition=0, offset=0)]))
        result = run(1)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE hostapp_handled ENGINE = InnoDB")
    assert states(result) == "u"
    assert "hostapp_handled" in result.messages[0].error


@pytest.mark.every_database
@pytest.mark.parametrize("atomic", [False, True])
def test_a_failed_statement_breaks_the_transaction_of_an_atomic_handler_only(
    orders: None, atomic: bool
) -> None:
    def twice(message: Any) -> None:
        Order.objects.create(number="same")
        with pytest.raises(IntegrityError):
            Order.objects.create(number="same")
        Order.objects.filter(number="same").update(note="goes on")

    register(twice, atomic=atomic)
    assert states(run(2)) == ("ff" if atomic else "pp")


@pytest.mark.every_database
def test_an_atomic_handler_that_swallows_the_last_error_fails_as_in_a_consumer(
    orders: None,
) -> None:
    def swallows(message: Any) -> None:
        Order.objects.create(number="same")
        with pytest.raises(IntegrityError):
            Order.objects.create(number="same")

    register(swallows, atomic=True)
    assert states(run(1)) == "f"


@pytest.mark.every_database
def test_a_handler_may_open_durable_blocks_and_roll_them_back(orders: None) -> None:
    def undoes(message: Any) -> None:
        with pytest.raises(ZeroDivisionError), transaction.atomic(durable=True):
            Order.objects.create(number="undone")
            raise ZeroDivisionError
        assert not Order.objects.exists()

    register(undoes)
    assert states(run(2)) == "pp"


@pytest.mark.mysql
@pytest.mark.every_database
@pytest.mark.parametrize("swallows", [False, True])
def test_a_row_that_others_have_locked_is_given_up_soon(
    orders: None, second_connection: Callable[..., Any], swallows: bool
) -> None:
    def updates(message: Any) -> None:
        try:
            Order.objects.filter(number="locked").update(note="rehearsed")
        except OperationalError:
            if not swallows:
                raise

    Order.objects.create(number="locked")
    other = second_connection()
    other.execute("BEGIN")
    other.execute("SELECT * FROM hostapp_order FOR UPDATE")
    register(updates)
    result = run(1)
    assert states(result) == "u"
    assert result.messages[0].seconds < 10
    assert "Lock wait timeout" in result.messages[0].error


@pytest.mark.mysql
@pytest.mark.every_database
def test_the_locks_of_a_call_are_free_before_the_next_one_begins(
    orders: None, in_thread: Callable[..., Any]
) -> None:
    """Else a long rehearsal would stop the consumers."""

    def updates(message: Any) -> None:
        if message.offset:
            in_thread(change, "consumed").result()
        if message.offset == 0:
            change("rehearsed")

    def change(note: str) -> None:
        with transaction.atomic():
            assert Order.objects.filter(number="free").update(note=note)

    Order.objects.create(number="free")
    register(updates)
    result = rehearse(
        group(),
        "default",
        spans=[Span(Partition.objects.select_related("topic").get(topic__name="orders"), 0, 2)],
        by="ann",
    )
    assert states(result) == "pp"
    assert Order.objects.get().note == "consumed"


def test_a_call_that_takes_longer_than_its_consume_timeout_fails(orders: None) -> None:
    def slow(message: Any) -> None:
        if message.offset == 0:
            time.sleep(0.03)

    register(slow, consume_timeout=0.02)
    result = run(2)
    assert states(result)[0] == "f"
    assert "consume timeout" in result.messages[0].error


def test_an_async_call_is_cancelled_at_its_consume_timeout(orders: None) -> None:
    async def hangs(message: Any) -> None:
        await asyncio.sleep(60)

    register(hangs, consume_timeout=0.05)
    result = run(1)
    assert states(result) == "f"
    assert result.messages[0].seconds < 30


@pytest.mark.parametrize("options", [{"rehearsable": False}, None], ids=["undeclared", "unknown"])
def test_a_handler_that_does_not_declare_it_is_never_called(
    orders: None, options: dict[str, Any] | None
) -> None:
    register(lambda message: pytest.fail("the handler was called"), **(options or {}))
    if options is None:
        registry._registered.clear()
    with pytest.raises(NotRehearsable, match="rehearsable=True" if options else "no consumer"):
        run()


def test_no_more_than_the_limit_is_rehearsed(orders: None) -> None:
    register(lambda message: None)
    result = run(limit=2)
    assert (states(result), bool(result.stopped)) == ("pp", True)
    assert not result.all_pass
    assert run(limit=MESSAGES).stopped == ""


def test_no_call_begins_when_the_time_is_over(orders: None) -> None:
    register(lambda message: pytest.fail("the handler was called"))
    result = run(seconds=0)
    assert (states(result), "more than 0 seconds" in result.stopped) == ("", True)
    assert not result.all_pass


def test_messages_without_a_tag_of_the_group_are_left_out(orders: None) -> None:
    register(lambda message: None, tags=["paid"])
    result = run()
    assert (result.messages, result.left_out) == ([], MESSAGES)


@pytest.mark.every_database
def test_dead_letters_are_rehearsed_from_their_own_copies(orders: None) -> None:
    seen = []

    def dies(message: Any) -> None:
        raise Reject("not now")

    def handler(message: Any) -> None:
        seen.append((message.body, message.attempt, message.offset))
        if message.offset == MESSAGES:
            raise Retry("still not", delay=9)

    register(dies)
    send_many([Outgoing("orders", n) for n in range(2)])
    assert drain("bill").dead == 2
    Message.objects.all().delete()
    first, second = DeadMessage.objects.order_by("pk")
    DeadMessage.objects.filter(pk=second.pk).update(body=b"7", edited_at=timezone.now())
    register(handler)
    result = run(letters=[second.pk, first.pk, 10**9])
    assert seen == [(7, 1, MESSAGES + 1), (0, 1, MESSAGES)]
    assert [one.dead_letter for one in result.messages] == [second.pk, first.pk]
    assert (states(result), result.left_out) == ("pf", 1)


def test_a_handler_sees_what_it_sees_in_a_consumer(orders: None) -> None:
    seen = []

    def looks(message: Any) -> None:
        seen.append((translation.get_language(), timezone.get_current_timezone_name(), database()))
        seen.append((message.attempt, message.group, message.body["id"]))

    register(looks)
    with translation.override("de"), timezone.override("Asia/Tokyo"), working_on("other"):
        run(1)
    assert seen == [("en-us", timezone.get_default_timezone_name(), "default"), (1, "bill", 0)]


@pytest.mark.mysql
def test_a_transaction_that_the_caller_has_open_is_not_that_of_the_calls(orders: None) -> None:
    """With ATOMIC_REQUESTS a page would else keep the locks of all its calls."""

    def handler(message: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION lock_wait_timeout = 7")
        assert not Order.objects.exists()

    register(handler)
    partition = Partition.objects.select_related("topic").get(topic__name="orders")
    with transaction.atomic():
        Order.objects.create(number="of the request")
        result = rehearse(group(), "default", spans=[Span(partition, 0, 2)], by="ann")
    assert states(result) == "pp"
    assert Order.objects.count() == 1
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@SESSION.lock_wait_timeout")
        assert cursor.fetchone() != (7,)


def test_a_handler_may_send_to_another_database_only_where_a_consumer_may(
    orders: None, ems_settings: Callable[..., None]
) -> None:
    ems_settings(SHARDS={"bills": "other"})

    def sends(message: Any) -> None:
        send("bills", 1)

    register(sends)
    assert states(run(1)) == "p"
    register(sends, atomic=True)
    result = run(1)
    assert states(result) == "f"
    assert "WrongDatabase" in result.messages[0].error


@pytest.mark.every_database
def test_a_killed_rehearsal_leaves_nothing(orders: None, spawn: Spawn) -> None:
    before = contents()
    child = spawn(KILLED)
    child.expect("wrote")
    child.kill()
    assert contents() == before


KILLED = """
import time
from streams import consumer
from streams.models import ConsumerGroup, Partition
from streams.operate.rehearsal import rehearse
from streams.operate.replay import Span
from tests.hostapp.models import Order

@consumer("orders", group="bill", rehearsable=True)
def hangs(message):
    Order.objects.create(number="written")
    print("wrote", flush=True)
    time.sleep(600)

group = ConsumerGroup.objects.select_related("topic").get(name="bill")
span = Span(Partition.objects.select_related("topic").get(topic__name="orders"), 0, 6)
rehearse(group, "default", spans=[span], by="ann")
"""
