"""Ordered groups: every message of a partition in its turn, whatever fails, dies or freezes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from streams import Outgoing, Reject, Retry, consumer, send_many
from streams.consume import registry
from streams.consume.outcome.dead_letter import redrive
from streams.consume.outcome.settle import release, settle
from streams.errors import GroupMismatch, LeaseLost
from streams.log.sequencer import sequence
from streams.models import (
    Cursor,
    DeadMessage,
    Delivery,
    Message,
    Partition,
    RetryMessage,
    State,
    Topic,
)
from streams.observe.audit.walk import audit
from streams.steps.sweep import sweep
from streams.testing import advance, drain
from tests.consuming import LONG_AFTER, Process

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

MINUTE = timedelta(minutes=1)


def sent(count: int, topic: str = "orders") -> None:
    send_many([Outgoing(topic, n, key="k") for n in range(count)])


class Recorder:
    """A handler that fails as it is told, and remembers what it has finished."""

    def __init__(self, **failures: BaseException | list[BaseException]) -> None:
        self.failures = {int(name[1:]): value for name, value in failures.items()}
        self.tried: list[tuple[int, int]] = []
        self.done: list[int] = []

    def __call__(self, message):
        self.tried.append((message.body, message.attempt))
        failure = self.failures.get(message.body)
        if isinstance(failure, list):
            failure = failure.pop(0) if failure else None
        if failure:
            raise failure
        self.done.append(message.body)


def registered(handler, **options):
    consumer("orders", group="mail", ordered=True, **options)(handler)
    return handler


def test_all_is_handled_in_the_order_of_offsets():
    handler = registered(Recorder())
    sent(25)
    assert drain().done == 25
    assert handler.done == list(range(25))
    assert audit("default") == []


def test_what_comes_after_a_failed_message_waits_for_it():
    handler = registered(Recorder(n2=[OSError("away"), OSError("away")]))
    sent(5)
    result = drain()
    assert (result.done, result.failed) == (2, 1)
    assert handler.done == [0, 1]
    assert not RetryMessage.objects.exists()
    assert drain().done == 0  # its time has not come, and nothing overtakes it
    advance(MINUTE)
    assert drain().failed == 1
    assert handler.done == [0, 1]
    advance(MINUTE)
    assert drain().done == 3
    assert handler.done == [0, 1, 2, 3, 4]
    assert handler.tried == [(0, 1), (1, 1), (2, 1), (2, 2), (2, 3), (3, 1), (4, 1)]
    assert audit("default") == []


def test_after_the_last_retry_it_is_dead_and_the_next_one_has_its_turn():
    handler = registered(Recorder(n1=OSError("away")), max_retries=1)
    sent(3)
    drain()
    advance(MINUTE)
    result = drain()
    assert (result.failed, result.dead, result.done) == (1, 1, 1)
    assert handler.done == [0, 2]
    letter = DeadMessage.objects.get()
    assert (letter.offset, letter.attempts) == (1, 2)
    assert audit("default") == []


def test_a_rejected_message_holds_up_nobody():
    handler = registered(Recorder(n1=Reject("odd")))
    sent(3)
    assert drain().dead == 1
    assert handler.done == [0, 2]
    assert audit("default") == []


def test_a_retry_says_itself_how_long_all_wait():
    registered(Recorder(n0=[Retry(delay=3600)]))
    sent(2)
    drain()
    advance(timedelta(minutes=59))
    assert drain().done == 0
    advance(timedelta(minutes=1))
    assert drain().done == 2


@pytest.mark.parametrize("atomic", [False, True])
def test_the_batch_of_a_batch_handler_ends_at_its_first_failure(atomic):
    seen = []
    failing = [OSError("away")]

    def handle(messages):
        seen.append([message.body for message in messages])
        return {m: failing.pop() for m in messages if m.body == 2 and failing}

    registered(handle, batch=4, atomic=atomic)
    sent(6)
    result = drain()
    assert (result.done, result.failed) == (2, 1)
    advance(MINUTE)
    assert drain().done == 4
    assert seen == [[0, 1, 2, 3], [2], [3, 4, 5]]
    assert audit("default") == []


def test_with_atomic_a_failure_ends_the_delivery_too():
    handler = registered(Recorder(n1=[OSError("away")]), atomic=True)
    sent(3)
    drain()
    assert handler.done == [0]
    advance(MINUTE)
    drain()
    assert handler.done == [0, 1, 2]
    assert audit("default") == []


def test_while_a_delivery_is_open_nobody_else_claims_from_its_partition():
    registered(Recorder())
    sent(20)
    first, second = Process("mail"), Process("mail")
    sequence("default")
    delivery = first.claim(batch=5)
    assert second.turn._turns.claimer.claim(5, MINUTE) is None
    settle(delivery, 5, max_retries=3)
    assert second.claim(batch=5).first_offset == 5


def test_partitions_of_one_topic_do_not_wait_for_each_other():
    topic = Topic.objects.create(name="orders")
    Partition.objects.create(topic=topic, number=1)
    registered(Recorder())
    first, second = Process("mail"), Process("mail")
    send_many([Outgoing("orders", n, partition=n % 2) for n in range(10)])
    sequence("default")
    claims = {first.claim().partition.number, second.claim().partition.number}
    assert claims == {0, 1}


def test_what_was_not_handed_over_is_given_back_in_its_place():
    registered(Recorder())
    sent(5)
    process = Process("mail")
    sequence("default")
    delivery = process.claim(batch=5)
    settle(delivery, 2, max_retries=3)
    release(delivery)
    assert not RetryMessage.objects.exists()
    again = Process("mail").claim()
    assert (again.first_offset, again.last_offset, again.attempt) == (2, 4, 1)


def test_a_dead_consumers_partition_is_taken_over_at_the_message_it_was_at():
    handler = registered(Recorder())
    sent(5)
    frozen = Process("mail")
    sequence("default")
    delivery = frozen.claim(batch=5)
    settle(delivery, 2, max_retries=3)
    advance(LONG_AFTER)
    assert sweep("default") == 1
    assert drain().done == 3
    assert handler.tried == [(2, 2), (3, 1), (4, 1)]
    # The frozen one wakes up: its token is of no use any more.
    with pytest.raises(LeaseLost):
        settle(delivery, 5, max_retries=3)
    with pytest.raises(LeaseLost):
        release(delivery)
    assert Cursor.objects.get().next_offset == 5
    assert audit("default") == []


def test_a_message_that_kills_its_process_again_runs_alone_and_dies_at_last():
    registered(Recorder(), max_retries=2)
    sent(3)
    sequence("default")
    for attempt, alone in ((1, False), (2, False), (3, True)):
        process = Process("mail")
        delivery = process.claim(batch=5)
        assert (delivery.first_offset, delivery.attempt, delivery.alone) == (0, attempt, alone)
        if attempt > 1:
            assert delivery.last_offset == 0  # by itself
            delivery.start(MINUTE)
        advance(LONG_AFTER)
        assert sweep("default") == 1
        advance(MINUTE)
    assert DeadMessage.objects.get().attempts == 3
    assert drain().done == 2
    assert audit("default") == []


def test_a_later_attempt_that_never_started_is_not_spent():
    registered(Recorder(n0=[OSError("away")]))
    sent(2)
    drain()
    advance(MINUTE)
    process = Process("mail")
    assert process.claim().attempt == 2
    advance(LONG_AFTER)
    sweep("default")
    assert Process("mail").claim().attempt == 2


def test_a_lowered_number_of_retries_ends_a_message_that_waits():
    registered(Recorder(n0=[OSError("away")]))
    sent(1)
    drain()
    group = Cursor.objects.get().group
    group.max_retries = 0
    group.save()
    advance(MINUTE)
    assert drain().dead == 1
    assert DeadMessage.objects.get().attempts == 1


def test_a_lost_body_is_waited_for_once_and_then_counted():
    handler = registered(Recorder())
    sent(30)
    sequence("default")
    Message.objects.filter(offset__range=(3, 20)).delete()
    assert drain().done == 3
    assert drain().done == 0
    advance(MINUTE)
    result = drain()
    assert (result.missing, result.done) == (18, 9)
    assert handler.done == [0, 1, 2, *range(21, 30)]


def test_ordering_is_fixed_when_the_group_is_created():
    consumer("orders", group="mail")(Recorder())
    sent(1)
    drain()
    registry._registered.clear()
    handler = registered(Recorder())
    with pytest.raises(GroupMismatch):
        drain()
    assert handler.done == []


def test_every_delivery_of_an_ordered_group_says_what_became_of_it():
    registered(Recorder(n2=[OSError("away")]))
    sent(4)
    drain()
    advance(MINUTE)
    drain()
    rows = Delivery.objects.order_by("id").values_list(
        "first_offset", "last_offset", "progress", "state", "failed"
    )
    assert list(rows) == [
        (0, 2, 3, State.RETRY, 1),
        (2, 2, 3, State.DONE, 0),
        (3, 3, 4, State.DONE, 0),
    ]


@pytest.mark.mysql
def test_a_claim_whose_reply_was_lost_still_runs_alone(proxied):
    registered(Recorder())
    sent(1)
    process = Process("mail")
    sequence("default")
    Cursor.objects.update(attempt=3, alone=True)
    proxied.lose_reply_to(b"COMMIT")
    delivery = process.claim()
    assert proxied.fired == [b"COMMIT"]
    assert (delivery.attempt, delivery.alone) == (3, True)


@pytest.mark.mysql
def test_an_atomic_batch_that_failed_midway_ends_once_though_the_reply_is_lost(proxied):
    def handle(messages):
        if len(messages) > 1:
            proxied.lose_reply_to(b"COMMIT")
            return {messages[2]: OSError("away")}
        return None

    registered(handle, batch=4, atomic=True)
    sent(6)
    result = drain()
    assert proxied.fired == [b"COMMIT"]
    assert (result.done, result.failed) == (2, 1)
    assert Cursor.objects.get().next_offset == 2


@pytest.mark.mysql
def test_the_end_of_a_delivery_whose_reply_was_lost_is_not_written_twice(proxied):
    def handle(message):
        if message.attempt == 1:
            proxied.lose_reply_to(b"COMMIT")
            raise OSError("away")

    registered(handle)
    sent(1)
    assert drain().failed == 1
    assert proxied.fired == [b"COMMIT"]
    cursor = Cursor.objects.get()
    assert (cursor.next_offset, cursor.attempt, cursor.open_delivery) == (0, 2, None)
    advance(MINUTE)
    assert drain().done == 1


def test_a_redriven_message_comes_out_of_its_turn_and_moves_no_cursor():
    handler = registered(Recorder(n1=[OSError("away"), OSError("away")]), max_retries=0)
    sent(3)
    drain()
    for _redriven in range(2):
        assert redrive(DeadMessage.objects.waiting().get())
        drain()
        assert Cursor.objects.get().next_offset == 3
    assert handler.done == [0, 2, 1]
    assert not RetryMessage.objects.exists()
    assert audit("default") == []
