"""Who waits for whom: with real code held between two of its statements, locks and all."""

from __future__ import annotations

from collections.abc import Callable, Set
from concurrent.futures import wait
from typing import Any

import pytest
from django.db import connection, transaction

from streams import Outgoing, Reject, consumer, send, send_many
from streams.consume import registry
from streams.consume.limits import Limits, Overrides
from streams.consume.outcome.dead_letter import redrive
from streams.consume.outcome.settle import settle
from streams.consume.subscription import subscribe
from streams.database.transactions import own_transaction
from streams.deliver.claim import groups_with_due_retries
from streams.deliver.due import Places, partitions, what_is_due
from streams.deliver.handling import Handling
from streams.deliver.reading import Reading
from streams.log import topics
from streams.log.sequencer import sequence
from streams.models import (
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Kind,
    Message,
    Partition,
    RetryMessage,
    State,
    UtcNow,
)
from streams.models.retry import Again
from streams.observe.audit.walk import audit
from streams.process.running_group import RunningGroup
from streams.process.shared.client import Client
from streams.steps.sweep import sweep
from tests.concurrency.conftest import MINUTE, Stream
from tests.concurrency.locks import held_before, no_lock_waits, wait_until_one_waits
from tests.processes import PATIENCE_SECONDS
from tests.sessions import Session, Threads

pytestmark = [pytest.mark.mysql, pytest.mark.django_db(transaction=True)]

# The last statements of a pass, a claim and the claim of a retry: all their locks are held.
END_OF_PASS = "UPDATE `ems_partition`"
END_OF_CLAIM = "INSERT INTO `ems_topic_group_log`"

LIMITS = Limits(batch=5, max_retries=16, consume_timeout=MINUTE)


@pytest.fixture(autouse=True)
def clean_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


def handle(delivery: Delivery, handler: Callable[[Any], Any] = lambda messages: None) -> None:
    """Read, call, settle."""
    topic, group = delivery.group.topic.name, delivery.group.name
    registry._registered.clear()
    consumer(topic, group=group, batch=5)(handler)
    registration = registry.find(topic, group)
    assert registration
    Handling(delivery, registration, LIMITS).run()


def test_messages_are_consumed_while_a_pass_holds_the_partition(
    stream: Stream, in_thread: Threads, isolation: str
) -> None:
    stream.fill(10)
    send_many([Outgoing("orders", n) for n in range(10, 20)])
    with held_before(in_thread, END_OF_PASS, lambda: sequence("default")), no_lock_waits():
        delivery = stream.claim()
        assert delivery
        handle(delivery)
        assert delivery.progress == 5
        failing = stream.claim()
        assert failing
        handle(failing, lambda messages: {messages[0]: ValueError("no")})
        assert RetryMessage.objects.get().offset == 5
        assert behind(stream) == set()
    assert Partition.objects.get().next_offset == 20


def behind(stream: Stream) -> Set[int]:
    """The groups that a consumer process would find something for."""
    return what_is_due(Places([stream.group.pk], partitions("default")), "default").groups


def test_a_second_sequencer_does_not_wait_for_the_first(stream: Stream, in_thread: Threads) -> None:
    send("orders", 1)
    with held_before(in_thread, END_OF_PASS, lambda: sequence("default")), no_lock_waits():
        done = sequence("default")
        assert (done.busy, done.sequenced) == (True, 0)
    assert Message.objects.get().offset == 0


def test_sends_never_wait_for_a_pass(stream: Stream, in_thread: Threads, isolation: str) -> None:
    stream.fill(10)
    send_many([Outgoing("orders", n) for n in range(10)])
    with held_before(in_thread, END_OF_PASS, lambda: sequence("default")), no_lock_waits():
        send_in_every_way()
    assert sequence("default").sequenced == 5
    assert list(Message.objects.order_by("id").values_list("offset", flat=True)) == list(range(25))


def test_a_transaction_of_ems_sees_what_was_committed_since_it_began(
    stream: Stream, in_thread: Threads, isolation: str
) -> None:
    with own_transaction("default"):
        assert not Message.objects.exists()
        in_thread(lambda: send("orders", 1)).result(PATIENCE_SECONDS)
        assert Message.objects.exists()


def test_sends_never_wait_for_a_claim(stream: Stream, in_thread: Threads, isolation: str) -> None:
    stream.fill(10)
    with held_before(in_thread, END_OF_CLAIM, stream.claim), no_lock_waits():
        send_in_every_way()
        assert sequence("default").sequenced == 5


def test_sends_never_wait_for_a_new_group(
    stream: Stream, in_thread: Threads, isolation: str
) -> None:
    consumer("orders", group="new")(print)
    registration = registry.find("orders", "new")
    assert registration
    stream.fill(10)
    with (
        held_before(
            in_thread,
            "INSERT INTO `ems_cursor`",
            lambda: subscribe(registration, "default", "latest"),
        ),
        no_lock_waits(),
    ):
        send_in_every_way()
        assert stream.claim()
    assert ConsumerGroup.objects.count() == 2


def send_in_every_way() -> None:
    """Five messages: at once, in a transaction, many, with the topic looked up anew."""
    topics.forget()
    send("orders", "at once")
    with transaction.atomic():
        send("orders", "first")
        send("orders", "second")
    send_many([Outgoing("orders", "a"), Outgoing("orders", "b")])


def test_a_sender_with_an_open_transaction_holds_nobody_up(
    stream: Stream, second_connection: Callable[[], Session], isolation: str
) -> None:
    stream.fill(10)
    other = second_connection()
    with other.active():
        transaction.set_autocommit(False)
        send("orders", "late")
    with no_lock_waits():
        send("orders", "early")
        assert sequence("default").sequenced == 1
        delivery = stream.claim(batch=11)
        assert delivery
        handle(delivery)
    with other.active():
        transaction.commit()
    assert sequence("default").sequenced == 1


def test_a_claim_leaves_a_cursor_that_is_being_claimed_from(
    stream: Stream, in_thread: Threads
) -> None:
    stream.fill(10)
    second = Partition.objects.create(topic=stream.topic, number=1, next_offset=10)
    Cursor.objects.create(group=stream.group, partition=second)
    claimer = stream.claimer("other")
    held_claim = held_before(in_thread, END_OF_CLAIM, lambda: claimer.claim(5, MINUTE))
    with held_claim as first, no_lock_waits():
        deliveries = [stream.claim(), stream.claim()]
    places = [(d.partition_id, d.first_offset) for d in (*deliveries, first.result()) if d]
    held = first.result().partition_id
    free = second.pk if held == stream.partition.pk else stream.partition.pk
    assert places == [(free, 0), (free, 5), (held, 0)]


def test_what_one_claims_from_several_cursors_no_other_claims(
    stream: Stream, in_thread: Threads
) -> None:
    stream.fill(10)
    second = Partition.objects.create(topic=stream.topic, number=1, next_offset=10)
    Cursor.objects.create(group=stream.group, partition=second)
    with held_before(in_thread, END_OF_CLAIM, stream.claim) as first:
        others = in_thread(lambda: [stream.claim(), stream.claim()])
        wait([others], timeout=10)
    taken = [first.result(), *others.result(60)]
    assert len({(d.partition_id, d.first_offset) for d in taken if d}) == 3


def test_a_claim_waits_its_turn_when_every_cursor_is_held(
    stream: Stream, in_thread: Threads
) -> None:
    stream.fill(12)
    with held_before(in_thread, END_OF_CLAIM, stream.claim) as first:
        second = in_thread(stream.claim, "second")
        wait_until_one_waits(connection.settings_dict["NAME"])
        assert not second.done()
    taken = [first.result(), second.result(60)]
    assert [(d.first_offset, d.last_offset) for d in taken] == [(0, 4), (5, 9)]
    assert stream.claim().last_offset == 11  # type: ignore[union-attr]
    assert stream.claim() is None


def test_a_claim_that_has_waited_sees_what_came_meanwhile(
    stream: Stream, in_thread: Threads
) -> None:
    """The statement that waits for the cursor also reads the end of the partition."""
    stream.fill(5)
    with held_before(in_thread, END_OF_CLAIM, stream.claim):
        second = in_thread(stream.claim, "second")
        wait_until_one_waits(connection.settings_dict["NAME"])
        stream.fill(5)
    claimed = second.result(60)
    assert claimed
    assert (claimed.first_offset, claimed.last_offset) == (5, 9)


def test_groups_do_not_wait_for_each_other(stream: Stream, in_thread: Threads) -> None:
    stream.fill(5)
    other = ConsumerGroup.objects.create(topic=stream.topic, name="audit")
    Cursor.objects.create(group=other, partition=stream.partition)
    with held_before(in_thread, END_OF_CLAIM, stream.claim), no_lock_waits():
        delivery = Stream(stream.topic, stream.partition, other).claim()
        assert delivery
        handle(delivery)


def test_a_retry_that_is_being_claimed_is_left_to_its_claimer(
    stream: Stream, in_thread: Threads, isolation: str
) -> None:
    stream.fill(3)
    retries = RetryMessage.objects.using("default")
    retries.schedule(stream.group.pk, stream.partition.pk, [Again(n, 2) for n in (0, 1)])

    def claim_retry() -> int | None:
        claimed = stream.claimer().claim_retry(MINUTE)
        return claimed and claimed[0].first_offset

    with held_before(in_thread, END_OF_CLAIM, claim_retry) as first, no_lock_waits():
        assert {claim_retry()} | {claim_retry()} >= {None}
        retries.schedule(stream.group.pk, stream.partition.pk, [Again(2, 2)])
        assert claim_retry() == 2
    offsets = Delivery.objects.filter(kind=Kind.RETRY).values_list("first_offset", flat=True)
    assert sorted(offsets) == [0, 1, 2]
    assert first.result() in (0, 1)


def test_a_held_delivery_stops_neither_claims_nor_the_sweep(
    stream: Stream, second_connection: Callable[[], Session], isolation: str
) -> None:
    stream.fill(20)
    held, lost = stream.claim(), stream.claim()
    assert held
    assert lost
    other = second_connection()
    with other.active():
        transaction.set_autocommit(False)
        held.extend(MINUTE)  # as a handler with atomic=True does for as long as it settles
    Delivery.objects.filter(pk=lost.pk).update(deadline=UtcNow(-MINUTE))
    with no_lock_waits():
        # Without a client in the table both have expired; the held one is left for later.
        assert sweep("default") == 1
        delivery = stream.claim()
        assert delivery
        handle(delivery)
        assert sequence("default").sequenced == 0
    assert Delivery.objects.get(pk=lost.pk).state == State.RETRY
    with other.active():
        transaction.rollback()
    assert sweep("default") == 1


def test_plain_reads_wait_for_nobody(
    stream: Stream, second_connection: Callable[[], Session], isolation: str
) -> None:
    stream.fill(10)
    delivery = stream.claim()
    assert delivery
    consumer("orders", group="mail", batch=5)(print)
    registration = registry.find("orders", "mail")
    assert registration
    client = Client([stream.group.pk], "default")
    client.register()
    other = second_connection()
    with other.active(), connection.cursor() as cursor:
        transaction.set_autocommit(False)
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        for table in connection.introspection.table_names():
            if table.startswith("ems_"):
                cursor.execute(f"SELECT * FROM `{table}` FOR UPDATE")
    topics.forget()
    with no_lock_waits():
        assert behind(stream) == {stream.group.pk}
        assert groups_with_due_retries([stream.group.pk], "default") == set()
        feed = RunningGroup(registration, "default", Overrides())
        assert feed.limits()
        assert [len(call) for call in Reading(delivery, registration).calls(10)] == [5]
        assert stream.claimer().claim_retry(MINUTE) is None
        # Every row is locked, and a send still goes through; sequencing is left to the holder.
        send("orders", "new")
        assert sequence("default").busy


def test_a_redrive_waits_for_the_end_of_the_retry_that_it_repeats(
    stream: Stream, in_thread: Threads
) -> None:
    """Between the last look at its row and the end of it, it would be deleted with the row."""
    stream.fill(1)
    first = stream.claim()
    assert first
    handle(first, lambda messages: {messages[0]: Reject("no")})
    letter = DeadMessage.objects.get()
    assert redrive(letter)
    DeadMessage.objects.update(redriven_at=None)  # as if there were one more of the same place
    retry = stream.claimer("c").claim_retry(MINUTE)
    assert retry
    delivery, _row = retry

    def end() -> None:
        settle(delivery, 1, [], max_retries=16)

    with held_before(in_thread, "DELETE FROM `ems_retry_msg`", end) as settled:
        again = in_thread(redrive, letter)
        wait_until_one_waits(connection.settings_dict["NAME"])
        assert not settled.done()
    assert again.result(60)
    row = RetryMessage.objects.get()
    assert (row.offset, row.delivery_id, row.again) == (0, None, False)
    assert audit("default") == []


def test_a_locked_message_in_the_inbox_holds_up_its_own_partition_only(
    stream: Stream, second_connection: Callable[[], Session]
) -> None:
    send("orders", 1)
    send("others", 1)
    other = second_connection()
    with other.active():
        transaction.set_autocommit(False)
        list(Message.objects.select_for_update().filter(partition=stream.partition))
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION innodb_lock_wait_timeout = 2")
    done = sequence("default")
    assert (done.sequenced, done.busy) == (1, True)
    with other.active():
        transaction.rollback()
    assert sequence("default").sequenced == 1
