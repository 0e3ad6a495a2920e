"""Skips and attempts on demand beside consumers, resets and each other."""

from __future__ import annotations

from typing import Any

import pytest

from streams.consume.outcome.failure import Failure
from streams.consume.outcome.settle import settle
from streams.errors import AttemptRunning, NotBlocked
from streams.models import ConsumerGroup, Cursor, DeadMessage, Delivery, State, UtcNow
from streams.observe.audit.walk import audit
from streams.operate.acts.unblock import Shown, retry_now, skip
from streams.operate.reset import Reset, towards
from streams.operate.target import Target
from tests.concurrency.conftest import MINUTE, Stream
from tests.concurrency.locks import held_before, no_lock_waits
from tests.concurrency.test_resets import waits
from tests.processes import PATIENCE_SECONDS
from tests.sessions import Threads

pytestmark = [pytest.mark.mysql, pytest.mark.django_db(transaction=True)]

END_OF_CLAIM = "UPDATE `ems_cursor` SET `open_delivery`"
END_OF_VERB = END_OF_RESET = "UPDATE `ems_cursor`"
SHOWN = Shown(0, 2, 2)


@pytest.fixture
def blocked(stream: Stream) -> Stream:
    """An ordered group that has done 0 and 1 of 6; 2 has failed, and its next attempt is due."""
    ConsumerGroup.objects.update(ordered=True)
    stream.group.ordered = True
    stream.fill(6)
    delivery = stream.claim(batch=3)
    assert delivery
    settle(delivery, 3, [Failure(2, ValueError("no"))], max_retries=5)
    Cursor.objects.update(blocked_until=UtcNow(-MINUTE))
    return stream


def skipped(stream: Stream) -> Any:
    return skip(stream.group, SHOWN, "default", "ann")


def handles_the_rest(stream: Stream, first: int) -> None:
    seen: list[int] = []
    while delivery := stream.claim():
        seen += delivery.offsets
        settle(delivery, delivery.last_offset + 1, max_retries=5)
    assert seen == [*range(first, 6)]
    assert audit("default") == []


def test_a_message_that_a_consumer_claims_at_that_moment_is_not_skipped(
    blocked: Stream, in_thread: Threads, isolation: str
) -> None:
    with held_before(in_thread, END_OF_CLAIM, blocked.claim) as claim:
        refused = waits(in_thread, lambda: skipped(blocked))
    with pytest.raises(AttemptRunning):
        refused.result(PATIENCE_SECONDS)
    delivery = claim.result()
    assert (delivery.first_offset, delivery.attempt) == (2, 2)
    settle(delivery, 3, max_retries=5)
    assert not DeadMessage.objects.exists()
    handles_the_rest(blocked, 3)


def test_a_consumer_that_comes_during_a_skip_gets_the_next_message(
    blocked: Stream, in_thread: Threads, isolation: str
) -> None:
    with held_before(in_thread, END_OF_VERB, lambda: skipped(blocked)), no_lock_waits():
        assert blocked.claim() is None  # it passes by, and comes again
    handles_the_rest(blocked, 3)
    assert DeadMessage.objects.get().offset == 2


def test_of_two_skips_at_once_one_makes_the_letter(
    blocked: Stream, in_thread: Threads, isolation: str
) -> None:
    with held_before(in_thread, END_OF_VERB, lambda: skipped(blocked)) as first:
        second = waits(in_thread, lambda: skipped(blocked))
    assert first.result()
    with pytest.raises(NotBlocked):
        second.result(PATIENCE_SECONDS)
    assert DeadMessage.objects.get().offset == 2
    assert Delivery.objects.filter(state=State.SKIPPED).count() == 1
    handles_the_rest(blocked, 3)


@pytest.mark.parametrize(("to", "first"), [("0", 0), ("2", 2), ("4", 4)])
def test_a_skip_that_waited_for_a_reset_does_nothing(
    blocked: Stream, in_thread: Threads, isolation: str, to: str, first: int
) -> None:
    with held_before(in_thread, END_OF_RESET, lambda: reset(blocked, to)):
        refused = waits(in_thread, lambda: skipped(blocked))
    with pytest.raises(NotBlocked):
        refused.result(PATIENCE_SECONDS)
    assert not DeadMessage.objects.exists()
    handles_the_rest(blocked, first)


def test_a_reset_that_waited_for_a_skip_begins_where_that_ended(
    blocked: Stream, in_thread: Threads, isolation: str
) -> None:
    with held_before(in_thread, END_OF_VERB, lambda: skipped(blocked)):
        moved = waits(in_thread, lambda: reset(blocked, "+1"))
    (move,) = moved.result(PATIENCE_SECONDS)
    assert (move.position, move.target) == (3, 4)
    handles_the_rest(blocked, 4)


def test_an_attempt_on_demand_that_waited_for_a_skip_is_refused(
    blocked: Stream, in_thread: Threads, isolation: str
) -> None:
    with held_before(in_thread, END_OF_VERB, lambda: skipped(blocked)):
        refused = waits(in_thread, lambda: retry_now(blocked.group, SHOWN, "default"))
    with pytest.raises(NotBlocked):
        refused.result(PATIENCE_SECONDS)
    handles_the_rest(blocked, 3)


def reset(stream: Stream, to: str) -> Any:
    return Reset(stream.group, towards(Target.parse(to)), "default", force=True).run()
