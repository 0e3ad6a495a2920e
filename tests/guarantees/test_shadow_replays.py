"""A shadow replay shows what a handler would do, and leaves nothing of it in any database."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, connections, transaction
from django.utils import timezone

from streams import Outgoing, Retry, cancel, consumer, send, send_many
from streams.consume import registry
from streams.errors import (
    ShadowExists,
    ShadowMismatch,
    ShadowRefused,
    TransactionEnded,
    UnknownShadow,
)
from streams.models import ConsumerGroup, Partition, ShadowCall, ShadowRun, UtcNow
from streams.operate.replay import Span
from streams.operate.shadow import runs
from streams.operate.shadow.run import shadow
from streams.retain.old_rows import all_old_rows
from streams.testing import drain
from tests.consuming import registered
from tests.hostapp.models import Handled, Order
from tests.processes import Spawn

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("clean_registry", "allowed"),
]

MESSAGES = 6
ALIASES = ("default", "other")
OWN = {"ems_shadow", "ems_shadow_call"}
Row = tuple[str, str]


@pytest.fixture
def allowed(ems_settings: Callable[..., None]) -> None:
    ems_settings(SHADOW_REPLAY=True)


@pytest.fixture
def orders() -> None:
    """Six orders that the group "bill" has handled."""
    register(lambda message: None)
    send_many([Outgoing("orders", {"id": n, "total": n * 10}, f"k{n}") for n in range(MESSAGES)])
    assert drain("bill").done == MESSAGES


def register(handler: Callable[[Any], Any], **options: Any) -> None:
    """Deploy another version of the handler."""
    registry._registered.clear()
    consumer("orders", group="bill", **options)(handler)


def contents() -> dict[str, list[Any]]:
    """Return all rows of all tables but those of the shadow replays."""
    return {
        f"{alias} {model._meta.db_table}": list(
            model._base_manager.using(alias).order_by("pk").values_list()
        )
        for alias in ALIASES
        for model in apps.get_models(include_auto_created=True)
        if model._meta.managed and model._meta.db_table not in OWN
    }


def run(name: str, end: int = MESSAGES, **options: Any) -> ShadowRun:
    """Run a shadow replay, and check that nothing else has changed in any table."""
    group = ConsumerGroup.objects.select_related("topic").get(name="bill")
    span = Span(Partition.objects.select_related("topic").get(topic__name="orders"), 0, end)
    before = contents()
    try:
        return shadow(
            group, registered("orders", "bill"), [span], name, by="me", using="default", **options
        )
    finally:
        assert contents() == before
        for alias in ALIASES:
            assert not connections[alias].in_atomic_block


def diff(ignored: set[str] | None = None) -> list[runs.Difference]:
    pair = [runs.find(name, "default") for name in ("a", "b")]
    return list(runs.differences(pair[0], pair[1], "default", ignored or set()))


def lines(name: str, kind: str, offset: int = 0) -> list[str]:
    """Return what the call of this message did in a run."""
    from streams.operate.shadow.details import Details

    call = ShadowCall.objects.get(run__name=name, first_offset=offset)
    return Details.unpacked(bytes(call.details)).lines(kind, set())


def bill(message: Any) -> None:
    """Write to two databases and send, and read what it has written."""
    order = Order.objects.create(number=message.body["id"], note="billed")
    Order.objects.filter(pk=order.pk).update(note=f"total {message.body['total']}")
    Order.objects.using("other").create(number=message.body["id"])
    Order.objects.filter(number="no such").delete()
    send("bills", {"order_id": order.pk, "total": message.body["total"]}, key=message.key)
    assert Order.objects.get(pk=order.pk).note


async def async_bill(message: Any) -> None:
    await Order.objects.acreate(number=message.body["id"], note=f"total {message.body['total']}")
    await asyncio.sleep(0)


def bill_all(messages: Sequence[Any]) -> dict[Any, BaseException]:
    Order.objects.bulk_create(Order(number=one.body["id"], note="billed") for one in messages)
    return {messages[0]: ValueError("not this one")}


@pytest.mark.every_database
@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize(
    ("handler", "batch"), [(bill, None), (async_bill, None), (bill_all, 4)], ids=str
)
def test_nothing_remains_and_an_unchanged_handler_shows_no_difference(
    orders: None, handler: Any, batch: int | None, atomic: bool
) -> None:
    register(handler, atomic=atomic, batch=batch)
    first = run("a")
    run("b")
    assert diff() == []
    assert first.state == "finished"
    assert first.messages == MESSAGES
    assert first.failed == (2 if batch else 0)
    assert ShadowCall.objects.filter(run=first.pk).count() == (2 if batch else MESSAGES)
    assert first.handler == registered("orders", "bill").name
    assert first.started_by == "me"


@pytest.mark.every_database
def test_a_call_is_kept_with_what_it_wrote_and_sent(orders: None) -> None:
    register(bill)
    run("a")
    assert lines("a", "wrote", 3) == [
        "INSERT hostapp_order: note='billed', number='3'",
        "UPDATE hostapp_order: note='total 30', where=id = <hostapp_order 1>, rows=1",
        "INSERT other.hostapp_order: note='', number='3'",
    ]
    assert lines("a", "sent", 3) == [
        "SEND bills: key=k3, body.order_id=<hostapp_order 1>, body.total=30"
    ]


# Each changes the handler in one thing: what differs, for which messages, and how.
CHANGES: dict[str, tuple[Callable[[Any], Any], str, list[str], list[str]]] = {}


def changed(what: str, before: str, after: str) -> Callable[[Any], Any]:
    def note(handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        listed = [[text] if text else [] for text in (before, after)]
        CHANGES[handler.__name__] = (handler, what, listed[0], listed[1])
        return handler

    return note


def old(message: Any) -> None:
    Order.objects.create(number=message.body["id"], note="old")
    send("bills", message.body["id"])


CREATED = "INSERT hostapp_order: note='old', number='2'"


@changed("wrote", CREATED, "INSERT hostapp_order: note='new', number='2'")
def another_value(message: Any) -> None:
    note = "new" if message.offset == 2 else "old"
    Order.objects.create(number=message.body["id"], note=note)
    send("bills", message.body["id"])


@changed("wrote", CREATED, "")
def no_row(message: Any) -> None:
    if message.offset != 2:
        Order.objects.create(number=message.body["id"], note="old")
    send("bills", message.body["id"])


@changed("sent", "SEND bills: body=2", "SEND bills: body=20")
def another_body(message: Any) -> None:
    Order.objects.create(number=message.body["id"], note="old")
    send("bills", message.body["id"] * (10 if message.offset == 2 else 1))


@changed("sent", "SEND bills: body=2", "SEND bills: key=x, tag=y, headers.h='1', body=2")
def another_key(message: Any) -> None:
    Order.objects.create(number=message.body["id"], note="old")
    more: dict[str, Any] = {
        "key": "x",
        "tag": "y",
        "headers": {"h": "1", "traceparent": str(uuid4())},
    }
    send("bills", message.body["id"], **(more if message.offset == 2 else {}))


@changed("raised", "", "Retry: not yet (delay 0:00:10)")
def an_error(message: Any) -> None:
    Order.objects.create(number=message.body["id"], note="old")
    send("bills", message.body["id"])
    if message.offset == 2:
        raise Retry("not yet", delay=10)


@changed("on_commit", "", "1")
def a_callback(message: Any) -> None:
    Order.objects.create(number=message.body["id"], note="old")
    send("bills", message.body["id"])
    if message.offset == 2:
        transaction.on_commit(lambda: pytest.fail("a callback has run"))


@pytest.mark.every_database
@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_handler_is_found_at_the_message_where_it_differs(
    orders: None, name: str
) -> None:
    handler, what, before, after = CHANGES[name]
    register(old)
    run("a")
    register(handler)
    run("b")
    (found,) = diff()
    assert (found.partition, found.first, found.last) == (0, 2, 2)
    assert (found.what, found.before, found.after) == (what, before, after)


def test_what_an_atomic_handler_wrote_before_it_raised_is_not_written(orders: None) -> None:
    def fails(message: Any) -> None:
        old(message)
        raise ValueError("no")

    register(fails, atomic=True)
    assert run("a").failed == MESSAGES
    assert lines("a", "wrote") == lines("a", "sent") == []
    assert lines("a", "raised") == ["ValueError: no"]
    register(fails)
    run("b")
    assert {one.what for one in diff()} == {"wrote", "sent"}


def test_a_block_that_the_handler_rolls_back_is_not_written(orders: None) -> None:
    def undoes(message: Any) -> None:
        Order.objects.create(number="kept")
        with pytest.raises(ZeroDivisionError), transaction.atomic(durable=True):
            old(message)
            raise ZeroDivisionError

    register(undoes)
    run("a")
    assert lines("a", "wrote") == ["INSERT hostapp_order: note='', number='kept'"]
    assert lines("a", "sent") == []


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
    assert run("a").failed == (MESSAGES if atomic else 0)
    assert len(lines("a", "wrote")) == (0 if atomic else 2)


@pytest.mark.every_database
def test_the_time_of_the_call_and_new_ids_are_no_difference(orders: None) -> None:
    now = timezone.now()

    def stamps(message: Any) -> None:
        first, second = (Order.objects.create(number=n) for n in ("1", "2"))
        Order.objects.filter(pk=second.pk).update(note=timezone.now())
        send("bills", {"at": timezone.now(), "ids": [first.pk, second.pk], "then": now})

    register(stamps)
    run("a")
    Order.objects.create(number="moves the ids").delete()
    run("b")
    assert diff() == []
    (text,) = lines("b", "sent")
    assert "body.at=<now>" in text
    assert now.isoformat()[:19] in text


def test_ignored_columns_are_not_compared(orders: None) -> None:
    def random(message: Any) -> None:
        Order.objects.create(number=message.body["id"], note=str(uuid4()))
        send("bills", {"uuid": uuid4(), "n": 1})

    register(random)
    run("a")
    run("b")
    assert {one.what for one in diff()} == {"wrote", "sent"}
    assert {one.what for one in diff({"hostapp_order.note"})} == {"sent"}
    assert diff({"hostapp_order.note", "bills.body.uuid"}) == []


@pytest.mark.every_database
def test_a_topic_that_is_missing_and_a_dedup_key_remain_nowhere(orders: None) -> None:
    def sends(message: Any) -> None:
        first = send("new", 1, dedup_key="once")
        assert send("new", 1, dedup_key="once").duplicate
        assert not first.duplicate
        assert cancel(send("new", 2, delay=timedelta(hours=1)).message_id) == "cancelled"

    register(sends)
    assert run("a").failed == 0
    assert lines("a", "sent")[0] == "SEND new: body=1"


@pytest.mark.mysql
@pytest.mark.every_database
@pytest.mark.parametrize(
    "statement", ["CREATE TABLE t (n INT)", "COMMIT", "TRUNCATE hostapp_order"]
)
def test_a_statement_that_commits_is_refused_before_it_runs(orders: None, statement: str) -> None:
    def commits(message: Any) -> None:
        old(message)
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"/* a comment */ {statement}")
        except ShadowRefused:
            pass  # even a handler that goes on ends the run

    register(commits)
    with pytest.raises(ShadowRefused, match=r"orders/0@0: .*ends its transaction"):
        run("a")
    assert runs.find("a", "default").state == "stopped"


def test_a_transaction_that_ends_beneath_django_stops_the_run(orders: None) -> None:
    def ends(message: Any) -> None:
        connection.connection.rollback()
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")

    register(ends)
    with pytest.raises(TransactionEnded):
        run("a")
    register(old)
    with pytest.raises(ShadowExists):
        run("a")


@pytest.mark.mysql
@pytest.mark.every_database
def test_a_table_without_transactions_is_refused(orders: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE hostapp_handled ENGINE = MyISAM")
    try:
        register(lambda message: Handled.objects.bulk_create([Handled(partition=0, offset=0)]))
        with pytest.raises(ShadowRefused, match="hostapp_handled"):
            run("a")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE hostapp_handled ENGINE = InnoDB")


def test_another_thread_gets_no_connection_that_could_commit(orders: None) -> None:
    def threaded(message: Any) -> None:
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()

    def beside() -> None:
        with pytest.raises(ShadowRefused):
            Order.objects.create(number="beside")

    register(threaded)
    with pytest.raises(ShadowRefused, match="another connection to default"):
        run("a")


def test_it_is_refused_without_the_setting(orders: None, ems_settings: Callable[..., None]) -> None:
    ems_settings(SHADOW_REPLAY=False)
    register(lambda message: pytest.fail("the handler was called"))
    with pytest.raises(ShadowRefused, match="SHADOW_REPLAY"):
        run("a")
    assert not ShadowRun.objects.exists()


def test_runs_of_other_calls_are_not_compared(orders: None) -> None:
    register(old)
    run("a")
    run("b", end=2)
    with pytest.raises(ShadowMismatch, match="spans"):
        diff()
    with pytest.raises(UnknownShadow):
        runs.find("c", "default")


def test_a_message_that_only_one_of_two_runs_has_handled_is_a_difference(orders: None) -> None:
    register(old)
    run("a")
    register(old, tags=["paid"])
    assert run("b").messages == 0
    assert [(one.first, one.what, one.before, one.after) for one in diff()] == [
        (n, "called", ["called"], []) for n in range(MESSAGES)
    ]


def test_details_are_kept_within_a_bound_and_still_compared(orders: None) -> None:
    def many(message: Any) -> None:
        numbers = range(3000)
        Order.objects.bulk_create(Order(number=n, note=last * 1000) for n in numbers)
        Order.objects.create(number="last", note=last)

    last = "x"
    register(many)
    run("a", end=1)
    assert len(bytes(ShadowCall.objects.get().details)) < 256 * 1024
    run("b", end=1)
    assert diff() == []
    ShadowRun.objects.filter(name="b").delete()
    last = "y"
    run("b", end=1)
    (found,) = diff()
    assert "more, SHA-256" in found.after[-1]


@pytest.mark.every_database
def test_a_killed_run_leaves_nothing_but_that_it_is_unfinished(orders: None, spawn: Spawn) -> None:
    before = contents()
    child = spawn(KILLED)
    child.expect("wrote")
    child.kill()
    assert contents() == before
    killed = runs.find("killed", "default")
    assert killed.state == "unfinished"
    with pytest.raises(ShadowMismatch, match="unfinished"):
        list(runs.differences(killed, killed, "default"))


KILLED = """
import time
from streams import consumer
from streams.consume.registry import find
from streams.models import ConsumerGroup, Partition
from streams.operate.replay import Span
from streams.operate.shadow.run import shadow
from tests.hostapp.models import Order

@consumer("orders", group="bill")
def hangs(message):
    Order.objects.create(number="written")
    print("wrote", flush=True)
    time.sleep(600)

group = ConsumerGroup.objects.select_related("topic").get(name="bill")
span = Span(Partition.objects.select_related("topic").get(topic__name="orders"), 0, 6)
shadow(group, find("orders", "bill"), [span], "killed", by="me", using="default")
"""


def test_the_retention_deletes_old_runs_with_their_calls(orders: None) -> None:
    register(old)
    run("a")
    run("b")
    ShadowRun.objects.filter(name="a").update(started_at=UtcNow(-timedelta(days=31)))
    assert sum(all_old_rows()["shadow replays"]("default")) == MESSAGES + 1
    assert list(ShadowCall.objects.values_list("run__name", flat=True)) == ["b"] * MESSAGES


# -- the commands --


def command(*words: str) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command("ems_groups", *words, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def different(*words: str) -> str:
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("ems_groups", "diff", *words, stdout=out)
    assert ended.value.code == 1
    return out.getvalue()


def test_the_verbs_run_list_compare_and_delete(orders: None) -> None:
    register(old)
    words = ("replay", "bill", "--from", "0", "--to", str(MESSAGES))
    before = contents()
    out, err = command(*words, "--shadow", "before")
    assert out == "before: 6 messages of bill, 0 failed; all is undone\n"
    assert "default, other" in err
    assert "mail, HTTP" in err
    command(*words, "--shadow", "same")
    register(another_value)
    command(*words, "--shadow", "after")
    assert contents() == before
    assert "finished" in command("shadows")[0]
    assert command("diff", "before", "same") == ("0 differences\n", "")
    assert different("before", "after") == (
        "orders/0@2 wrote\n"
        "  - INSERT hostapp_order: note='old', number='2'\n"
        "  + INSERT hostapp_order: note='new', number='2'\n"
        "1 difference\n"
    )
    assert json.loads(different("before", "after", "--json"))["shown"][0]["what"] == "wrote"
    assert different("before", "after", "--ignore", "hostapp_order.number")
    assert command("diff", "before", "after", "--ignore", "hostapp_order.note")[0][0] == "0"
    assert command("shadows", "--delete", "same")[0] == "deleted same: 6 calls\n"
    with pytest.raises(CommandError, match="no shadow replay"):
        command("diff", "before", "same")
