"""Resets and replays beside what else moves a log or a group, in both orders of every pair."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction

from streams import Outgoing, send_many
from streams.consume.outcome.settle import keep_below, release, settle
from streams.errors import LeaseLost, OffsetOutOfRange
from streams.log.sequencer import sequence
from streams.models import Cursor, Delivery, Partition, RetryMessage, State, Topic, UtcNow
from streams.models.retry import Again
from streams.observe.audit.walk import audit
from streams.operate import reset as reset_module
from streams.operate.replay import Span, start
from streams.operate.reset import CursorMove, Reset, towards
from streams.operate.target import Target
from streams.retain.purge import Purge
from tests.concurrency.conftest import MINUTE, Stream
from tests.concurrency.locks import held_before, no_lock_waits, wait_until_one_waits
from tests.processes import PATIENCE_SECONDS
from tests.sessions import Threads

pytestmark = [pytest.mark.mysql, pytest.mark.django_db(transaction=True)]

# The last statements: all locks are held.
END_OF_PASS = "UPDATE `ems_partition`"
END_OF_CLAIM = "INSERT INTO `ems_topic_group_log`"
END_OF_RESET = "UPDATE `ems_cursor`"
END_OF_START = "INSERT INTO `ems_cursor`"


def reset(stream: Stream, to: str | None) -> CursorMove:
    goal = None if to is None else towards(Target.parse(to))
    (move,) = Reset(stream.group, goal, "default", force=True).run()
    return move


def waits(in_thread: Threads, work: Any) -> Any:
    """Start ``work`` in a thread, and wait until it waits for a lock."""
    future = in_thread(work)
    wait_until_one_waits(str(connection.settings_dict["NAME"]), future)
    return future


def handled(stream: Stream, messages: int) -> None:
    stream.fill(messages)
    while delivery := stream.claim():
        settle(delivery, delivery.last_offset + 1, max_retries=5)


def position() -> tuple[int, int | None]:
    cursor = Cursor.objects.get(replay=0)
    return cursor.next_offset, cursor.previous_offset


def test_a_claim_that_was_under_way_is_taken_by_the_reset(
    stream: Stream, in_thread: Threads, isolation: str
) -> None:
    stream.fill(10)
    with held_before(in_thread, END_OF_CLAIM, stream.claim) as claim:
        moved = waits(in_thread, lambda: reset(stream, "0"))
    delivery = claim.result()
    assert [one.pk for one in moved.result(PATIENCE_SECONDS).fenced] == [delivery.pk]
    with pytest.raises(LeaseLost):
        settle(delivery, 5, max_retries=5)
    assert position() == (0, 5)
    assert audit("default") == []


@pytest.mark.parametrize("batch", [5, 2], ids=["all of it", "a part of it"])
def test_a_claim_of_what_was_given_back_is_taken_by_the_reset_too(
    stream: Stream, in_thread: Threads, isolation: str, batch: int
) -> None:
    """The reset has read which deliveries are open, and this is not yet one of them."""
    stream.fill(10)
    given = stream.claim()
    assert given
    release(given)
    with held_before(in_thread, END_OF_CLAIM, lambda: stream.claim(batch=batch)) as claim:
        moved = waits(in_thread, lambda: reset(stream, "0"))
    delivery = claim.result()
    assert delivery.offsets == range(batch)
    assert delivery.pk in [one.pk for one in moved.result(PATIENCE_SECONDS).fenced]
    with pytest.raises(LeaseLost):
        settle(delivery, batch, max_retries=5)
    assert not Delivery.objects.open().exists()
    assert audit("default") == []


@pytest.mark.parametrize(
    "give_back", [release, partial(keep_below, end=3)], ids=["all of it", "a part of it"]
)
def test_what_is_given_back_while_a_reset_begins_is_taken_too(
    stream: Stream, in_thread: Threads, isolation: str, give_back: Callable[[Delivery], None]
) -> None:
    stream.fill(10)
    delivery = stream.claim()
    assert delivery
    settle(delivery, 2, max_retries=5)
    with held_before(in_thread, END_OF_CLAIM, lambda: give_back(delivery)):
        moved = waits(in_thread, lambda: reset(stream, "0"))
    assert moved.result(PATIENCE_SECONDS).fenced
    assert not Delivery.objects.open().exists()
    assert position() == (0, 5)
    assert audit("default") == []


def test_a_claim_beside_a_reset_is_of_what_lies_past_the_target(
    stream: Stream, in_thread: Threads, isolation: str
) -> None:
    handled(stream, 10)
    stream.fill(5)
    with held_before(in_thread, END_OF_RESET, lambda: reset(stream, "7")):
        claim = waits(in_thread, stream.claim)
    assert claim.result(PATIENCE_SECONDS).first_offset == 7
    assert position() == (12, 10)
    assert audit("default") == []


def test_who_settles_during_a_reset_has_lost_the_lease(
    stream: Stream, in_thread: Threads, isolation: str
) -> None:
    stream.fill(10)
    delivery = stream.claim()
    assert delivery
    with held_before(in_thread, END_OF_RESET, lambda: reset(stream, "2")):
        settled = waits(in_thread, lambda: settle(delivery, 5, max_retries=5))
    with pytest.raises(LeaseLost):
        settled.result(PATIENCE_SECONDS)
    assert sorted(RetryMessage.objects.values_list("offset", flat=True)) == [0, 1]
    assert audit("default") == []


def test_what_is_settled_while_the_reset_waits_for_it_is_not_taken(
    stream: Stream, in_thread: Threads
) -> None:
    stream.fill(10)
    delivery = stream.claim()
    assert delivery
    with transaction.atomic():
        settle(delivery, 5, max_retries=5)
        moved = waits(in_thread, lambda: reset(stream, "2"))
    assert moved.result(PATIENCE_SECONDS).fenced == []
    assert Delivery.objects.get().state == State.DONE
    assert position() == (2, 5)
    assert audit("default") == []


def test_what_an_ordered_group_settles_while_the_reset_waits_is_not_repeated_by_its_undo(
    stream: Stream, in_thread: Threads
) -> None:
    stream.group.ordered = True
    stream.group.save()
    stream.fill(10)
    delivery = stream.claim()
    assert delivery
    with transaction.atomic():
        settle(delivery, 2, max_retries=5)
        moved = waits(in_thread, lambda: reset(stream, "latest"))
    assert moved.result(PATIENCE_SECONDS).position == 2
    assert reset(stream, None).target == 2
    assert audit("default") == []


def test_what_was_settled_before_the_reset_came_to_it_is_not_taken(
    stream: Stream, in_thread: Threads
) -> None:
    stream.fill(10)
    delivery = stream.claim()
    assert delivery
    settle(delivery, 5, max_retries=5)
    assert reset(stream, "2").fenced == []
    assert not RetryMessage.objects.exists()
    assert audit("default") == []


def test_the_claim_of_a_retry_that_was_under_way_is_taken_too(
    stream: Stream, in_thread: Threads, isolation: str
) -> None:
    """The reset has read which deliveries are open, and this is not yet one of them."""
    handled(stream, 10)
    again = RetryMessage.objects.all()
    again.schedule(stream.group.pk, stream.partition.pk, [Again(6, 2), Again(7, 2)])

    def claim() -> Any:
        return stream.claimer().claim_retry(MINUTE)

    with held_before(in_thread, END_OF_CLAIM, claim) as claimed:
        moved = waits(in_thread, lambda: reset(stream, "5"))
    delivery, row = claimed.result()
    move = moved.result(PATIENCE_SECONDS)
    assert ([one.pk for one in move.fenced], move.retries) == ([delivery.pk], 2)
    assert not RetryMessage.objects.exists()
    with pytest.raises(LeaseLost):
        settle(delivery, row.offset + 1, max_retries=5)
    assert audit("default") == []


def test_no_retry_is_claimed_while_a_reset_takes_it(
    stream: Stream, in_thread: Threads, isolation: str
) -> None:
    handled(stream, 10)
    again = RetryMessage.objects.all()
    again.schedule(stream.group.pk, stream.partition.pk, [Again(3, 2), Again(6, 2)])
    RetryMessage.objects.update(due_at=UtcNow(-MINUTE))
    with held_before(in_thread, END_OF_RESET, lambda: reset(stream, "5")), no_lock_waits():
        claimed = stream.claimer().claim_retry(MINUTE)
        assert claimed
        assert claimed[1].offset == 3
        assert stream.claimer().claim_retry(MINUTE) is None
    assert audit("default") == []


def test_a_reset_to_the_end_waits_for_the_pass_that_moves_it(
    stream: Stream, in_thread: Threads, isolation: str
) -> None:
    stream.fill(10)
    send_many([Outgoing("orders", n) for n in range(5)])
    with held_before(in_thread, END_OF_PASS, lambda: sequence("default")):
        moved = waits(in_thread, lambda: reset(stream, "latest"))
    assert moved.result(PATIENCE_SECONDS).target == 15
    assert audit("default") == []


def test_no_offset_is_given_out_during_a_reset_and_no_send_waits_for_it(
    stream: Stream, in_thread: Threads, isolation: str
) -> None:
    stream.fill(10)
    with (
        held_before(in_thread, END_OF_RESET, lambda: reset(stream, "latest")),
        no_lock_waits(),
    ):
        send_many([Outgoing("orders", n) for n in range(5)])
        assert sequence("default").busy
    assert position() == (10, 0)
    assert sequence("default").sequenced == 5
    assert audit("default") == []


def test_no_purge_goes_past_a_cursor_that_is_set_back_meanwhile(
    stream: Stream, in_thread: Threads, isolation: str
) -> None:
    handled(stream, 10)
    Topic.objects.update(retention_count=1)
    with held_before(in_thread, END_OF_RESET, lambda: reset(stream, "4")):
        purged = waits(in_thread, lambda: Purge("default").run())
    purged.result(PATIENCE_SECONDS)
    assert Partition.objects.get().first_offset == 4
    assert audit("default") == []


def test_no_cursor_is_set_back_to_what_is_purged_meanwhile(
    stream: Stream, in_thread: Threads, isolation: str
) -> None:
    handled(stream, 10)
    Topic.objects.update(retention_count=3)
    with held_before(in_thread, END_OF_PASS, lambda: Purge("default").run()):
        moved = waits(in_thread, lambda: reset(stream, "4"))
        replayed = in_thread(lambda: start(stream.group, [Span(stream.partition, 4, 6)], "default"))
    for outcome in (moved, replayed):
        with pytest.raises(OffsetOutOfRange, match="begins at offset 7"):
            outcome.result(PATIENCE_SECONDS)
    assert position() == (10, None)
    assert not Cursor.objects.filter(replay=1).exists()


def test_no_purge_goes_past_a_replay_that_is_begun_meanwhile(
    stream: Stream, in_thread: Threads, isolation: str
) -> None:
    handled(stream, 10)
    Topic.objects.update(retention_count=1)
    stream.partition.refresh_from_db()

    def replay() -> int:
        return start(stream.group, [Span(stream.partition, 4, 6)], "default")

    with held_before(in_thread, END_OF_START, replay):
        purged = waits(in_thread, lambda: Purge("default").run())
    purged.result(PATIENCE_SECONDS)
    assert Partition.objects.get().first_offset == 4


def test_a_frozen_consumer_keeps_a_reset_waiting_and_not_the_sequencer(
    stream: Stream, in_thread: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reset_module.LOCK_SECONDS <= 5
    monkeypatch.setattr(reset_module, "LOCK_SECONDS", 1)
    stream.fill(10)
    with held_before(in_thread, END_OF_CLAIM, stream.claim):
        moved = waits(in_thread, lambda: reset(stream, "0"))
        send_many([Outgoing("orders", n) for n in range(5)])
        limit = time.monotonic() + 20
        while not sequence("default").sequenced:  # between two tries of the reset
            assert time.monotonic() < limit, "the partition is never free"
    move = moved.result(PATIENCE_SECONDS)
    assert (move.position, len(move.fenced)) == (5, 1)
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@SESSION.innodb_lock_wait_timeout")
        before = cursor.fetchone()
        reset(stream, "latest")
        cursor.execute("SELECT @@SESSION.innodb_lock_wait_timeout")
        assert cursor.fetchone() == before


def test_two_resets_at_once_are_one_after_the_other(
    stream: Stream, in_thread: Threads, isolation: str
) -> None:
    handled(stream, 10)
    with held_before(in_thread, END_OF_RESET, lambda: reset(stream, "-4")):
        second = waits(in_thread, lambda: reset(stream, "-4"))
    move = second.result(PATIENCE_SECONDS)
    assert (move.position, move.target) == (6, 2)
    assert position() == (2, 6)
    assert reset(stream, None).target == 6
    assert audit("default") == []


def test_two_replays_at_once_have_each_a_number(
    stream: Stream, in_thread: Threads, isolation: str
) -> None:
    handled(stream, 10)
    stream.partition.refresh_from_db()

    def replay() -> int:
        return start(stream.group, [Span(stream.partition, 4, 6)], "default")

    with held_before(in_thread, END_OF_START, replay) as first:
        second = waits(in_thread, replay)
    assert (first.result(), second.result(PATIENCE_SECONDS)) == (1, 2)


def test_a_running_replay_neither_waits_for_a_reset_nor_is_touched_by_it(
    stream: Stream, in_thread: Threads
) -> None:
    handled(stream, 10)
    stream.partition.refresh_from_db()
    start(stream.group, [Span(stream.partition, 4, 9)], "default")
    held = stream.claim(batch=2)
    assert held
    with held_before(in_thread, END_OF_RESET, lambda: reset(stream, "0")), no_lock_waits():
        settle(held, 6, max_retries=5)
        other = stream.claim(batch=2)
        assert other
        assert (other.kind, other.first_offset) == ("replay", 6)
    assert Delivery.objects.filter(state=State.RELEASED).count() == 0
    assert audit("default") == []
