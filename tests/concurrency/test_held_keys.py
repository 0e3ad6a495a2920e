"""Keys that are held, parked behind and let go by several connections at once."""

from __future__ import annotations

from typing import Any

import pytest

from streams import Outgoing, send_many
from streams.consume.limits import limits
from streams.consume.outcome.dead_letter import give_up
from streams.consume.outcome.failure import AttemptsExhausted, Failure
from streams.deliver.closing import close
from streams.log.held_keys import repair_stuck
from streams.log.sequencer import sequence
from streams.models import (
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    HeldKey,
    RetryMessage,
    State,
    UtcNow,
)
from streams.observe.audit.walk import audit
from streams.operate.reset import Reset, towards
from streams.operate.target import Target
from tests.concurrency.conftest import MINUTE, Stream
from tests.concurrency.locks import held_before, no_lock_waits
from tests.concurrency.test_resets import waits
from tests.processes import PATIENCE_SECONDS
from tests.sessions import Threads

pytestmark = [pytest.mark.mysql, pytest.mark.django_db(transaction=True)]

FREES = "DELETE FROM `ems_held_key`"
MOVES_HEAD = "UPDATE `ems_held_key`"
WRITES_ROWS = "INSERT INTO `ems_retry_msg`"
END_OF_CLAIM = "UPDATE `ems_cursor` SET `open_delivery`"


@pytest.fixture
def keyed(stream: Stream) -> Stream:
    """A group by key that waits for the first of its messages, 0 of key a, which has failed."""
    ConsumerGroup.objects.update(ordered=True, by_key=True)
    stream.group.ordered = stream.group.by_key = True
    sent(stream, "a")
    ended(claimed(stream), 0)
    assert held() == {"a": 0}
    return stream


def sent(stream: Stream, keys: str) -> None:
    send_many([Outgoing("orders", number, key=key) for number, key in enumerate(keys)])
    sequence("default")


def claimed(stream: Stream, batch: int = 10) -> Delivery:
    delivery = stream.claim(batch=batch)
    assert delivery
    return delivery


def ended(delivery: Delivery, *failed: int) -> Any:
    """End the delivery; the messages at ``failed`` have failed."""
    failures = [Failure(offset, ValueError("no")) for offset in failed]
    in_force = limits(delivery.group, None, "default")
    return close(delivery, delivery.last_offset + 1, failures, in_force)


def claimed_retry(stream: Stream) -> Delivery:
    RetryMessage.objects.exclude(due_at=None).update(due_at=UtcNow(-MINUTE))
    found = stream.claimer("retries").claim_retry(MINUTE)
    assert found
    return found[0]


def held() -> dict[str, int]:
    return dict(HeldKey.objects.values_list("key", "head_offset"))


def due() -> list[int]:
    rows = RetryMessage.objects.exclude(due_at=None).order_by("offset")
    return list(rows.values_list("offset", flat=True))


def goes_through(stream: Stream, *offsets: int) -> None:
    """Handle all that is left; the retries must come in the order of ``offsets``."""
    seen: list[int] = []
    while True:
        RetryMessage.objects.exclude(due_at=None).update(due_at=UtcNow(-MINUTE))
        found = stream.claimer("retries").claim_retry(MINUTE)
        if not found:
            break
        seen.append(found[0].first_offset)
        ended(found[0])
    assert seen == list(offsets)
    assert held() == {}
    assert not RetryMessage.objects.exists()
    assert audit("default") == []


def test_what_is_parked_while_its_key_is_freed_holds_it_anew(
    keyed: Stream, in_thread: Threads, isolation: str
) -> None:
    sent(keyed, "ab")
    new, retry = claimed(keyed), claimed_retry(keyed)
    assert new.parks.keys() == {1}
    with held_before(in_thread, FREES, lambda: ended(retry)):
        parks = waits(in_thread, lambda: ended(new))
    parks.result(PATIENCE_SECONDS)
    assert (held(), due()) == ({"a": 1}, [1])
    goes_through(keyed, 1)


def test_a_key_is_not_freed_while_something_is_parked_behind_it(
    keyed: Stream, in_thread: Threads, isolation: str
) -> None:
    sent(keyed, "ab")
    new, retry = claimed(keyed), claimed_retry(keyed)
    with held_before(in_thread, WRITES_ROWS, lambda: ended(new)):
        frees = waits(in_thread, lambda: ended(retry))
    frees.result(PATIENCE_SECONDS)
    assert (held(), due()) == ({"a": 1}, [1])
    goes_through(keyed, 1)


def test_a_claim_beside_the_failure_that_holds_a_key_gets_nothing_of_it(
    keyed: Stream, in_thread: Threads, isolation: str
) -> None:
    sent(keyed, "bcb")
    first = claimed(keyed, batch=2)
    with held_before(in_thread, WRITES_ROWS, lambda: ended(first, 1)), no_lock_waits():
        assert keyed.claim() is None  # the cursor is locked
    second = claimed(keyed)
    assert (second.first_offset, set(second.parks)) == (3, {3})
    ended(second)
    assert held() == {"a": 0, "b": 1}


def test_a_message_that_was_held_back_waits_its_turn_though_its_key_is_freed_meanwhile(
    keyed: Stream, in_thread: Threads, isolation: str
) -> None:
    sent(keyed, "aba")
    with held_before(in_thread, END_OF_CLAIM, lambda: claimed(keyed)) as claim, no_lock_waits():
        ended(claimed_retry(keyed))
    assert held() == {}
    ended(claim.result())
    assert (held(), due()) == ({"a": 1}, [1])
    goes_through(keyed, 1, 3)


def test_of_two_retries_of_a_key_one_runs_at_a_time(
    keyed: Stream, in_thread: Threads, isolation: str
) -> None:
    sent(keyed, "aa")
    ended(claimed(keyed))
    retry = claimed_retry(keyed)
    with held_before(in_thread, MOVES_HEAD, lambda: ended(retry)), no_lock_waits():
        # The next one has a due time already, which nobody else sees.
        assert keyed.claimer("other").claim_retry(MINUTE) is None
    goes_through(keyed, 1, 2)


def test_a_sweep_beside_the_end_of_a_message_lets_nothing_go(
    keyed: Stream, in_thread: Threads, isolation: str
) -> None:
    sent(keyed, "aa")
    ended(claimed(keyed))
    retry = claimed_retry(keyed)
    with held_before(in_thread, MOVES_HEAD, lambda: ended(retry)), no_lock_waits():
        assert repair_stuck("default", 100) == 0
    assert due() == [1]
    goes_through(keyed, 1, 2)


def test_of_two_sweeps_at_once_one_repairs_a_key(
    keyed: Stream, in_thread: Threads, isolation: str
) -> None:
    sent(keyed, "aaa")
    ended(claimed(keyed))
    RetryMessage.objects.filter(offset=0).delete()  # as nothing of EMS does
    with held_before(in_thread, MOVES_HEAD, lambda: repair_stuck("default", 100)) as first:
        second = waits(in_thread, lambda: repair_stuck("default", 100))
    assert (first.result(), second.result(PATIENCE_SECONDS)) == (1, 0)
    assert (held(), due()) == ({"a": 1}, [1])
    RetryMessage.objects.filter(offset=1).delete()
    assert repair_stuck("default", 100) == 1
    assert (held(), due()) == ({"a": 2}, [2])


def test_a_dead_letter_beside_a_parking_claim_lets_the_next_one_go(
    keyed: Stream, in_thread: Threads, isolation: str
) -> None:
    sent(keyed, "ab")
    new = claimed(keyed)
    row = RetryMessage.objects.get()
    row.group = keyed.group
    with held_before(in_thread, FREES, lambda: give_up(row, AttemptsExhausted("no"))):
        parks = waits(in_thread, lambda: ended(new))
    parks.result(PATIENCE_SECONDS)
    assert DeadMessage.objects.get().offset == 0
    assert (held(), due()) == ({"a": 1}, [1])
    goes_through(keyed, 1)


def test_a_reset_beside_the_end_of_a_message_leaves_no_key_held(
    keyed: Stream, in_thread: Threads, isolation: str
) -> None:
    sent(keyed, "aab")
    ended(claimed(keyed))
    retry = claimed_retry(keyed)
    with held_before(in_thread, MOVES_HEAD, lambda: ended(retry)):
        moved = waits(in_thread, lambda: reset(keyed, "1"))
    moved.result(PATIENCE_SECONDS)
    assert held() == {}
    assert Cursor.objects.get().next_offset == 1
    assert claimed(keyed).parks == {}
    assert Delivery.objects.filter(state=State.START).count() == 1


def reset(stream: Stream, to: str) -> Any:
    return Reset(stream.group, towards(Target.parse(to)), "default", force=True).run()
