"""A delivery whose messages are settled in any order: only what is not settled comes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest
from django.db import connection

from streams import Outgoing, send_many
from streams.chaos.forks import in_fork
from streams.consume.outcome.any_order import Ends, bits, settle_any_order, split
from streams.consume.outcome.expire import expire
from streams.consume.outcome.settle import release, settle
from streams.consume.registry import registration_of
from streams.consume.subscription import subscribe
from streams.deliver.claim import Claimer
from streams.deliver.recovery import recover
from streams.deliver.slot import SLOT_SIZE, ProgressSlot, read
from streams.errors import LeaseLost
from streams.log.sequencer import sequence
from streams.models import (
    Consumer,
    ConsumerGroup,
    Delivery,
    Partition,
    RetryMessage,
    State,
    Topic,
    UtcNow,
)
from streams.models.consumer import LEASE
from streams.observe.audit.walk import audit
from streams.operate.reset import Reset, towards
from streams.operate.target import Target
from streams.retain.purge import Purge
from streams.steps.sweep import sweep
from streams.testing import advance
from tests.consuming import LONG_AFTER, given_back
from tests.faults import Guillotine, Severed, strides
from tests.hostapp.models import Handled
from tests.sessions import Session

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.every_database]

HOUR = timedelta(hours=1)
TOPIC, GROUP = "work", "pool"
CLIENT = "10.0.0.1@1@pool"


def group() -> ConsumerGroup:
    found = subscribe(registration_of(TOPIC, GROUP, start="earliest"), "default")
    Consumer.objects.get_or_create(
        client_id=CLIENT, group=found, defaults={"lease_until": UtcNow(LEASE)}
    )
    return found


def claimed(number: int = 8) -> Delivery:
    """Return a claim of new messages, by a client that lives."""
    send_many([Outgoing(TOPIC, n) for n in range(number)])
    sequence("default")
    delivery = Claimer(group(), CLIENT, "1", "default").claim(63, HOUR)
    assert delivery is not None
    assert len(delivery.offsets) == number
    return delivery


def settled(delivery: Delivery, offsets: Collection[int]) -> list[Delivery]:
    done = (delivery.settled or 0) | bits(offsets, delivery.first_offset)
    return settle_any_order([Ends(delivery, done)], "default")


def parts() -> dict[tuple[int, int], str]:
    rows = Delivery.objects.order_by("first_offset", "pk")
    return {(row.first_offset, row.last_offset): row.state for row in rows}


def retries() -> dict[int, int]:
    return dict(RetryMessage.objects.values_list("offset", "attempt"))


def test_what_is_settled_in_between_stays_settled_and_the_last_one_ends_the_delivery() -> None:
    delivery = claimed(4)
    assert settled(delivery, {2}) == []
    row = Delivery.objects.get()
    assert (row.progress, row.settled, row.state) == (0, 0b100, State.START)
    assert settled(delivery, {0, 1}) == []
    row = Delivery.objects.get()
    assert (row.progress, row.state, row.finished_at) == (3, State.START, None)
    assert settled(delivery, {3}) == []
    row = Delivery.objects.get()
    assert (row.progress, row.state) == (4, State.DONE)
    assert row.finished_at
    assert row.started_at
    assert audit("default") == []


def test_one_statement_settles_many_deliveries_and_says_which_are_lost() -> None:
    send_many([Outgoing(TOPIC, n) for n in range(9)])
    sequence("default")
    claimer = Claimer(group(), CLIENT, "1", "default")
    three = [claimer.claim(3, HOUR) for _ in range(3)]
    held = [one for one in three if one is not None]
    Delivery.objects.filter(pk=held[1].pk).update(token="another")
    ends = [Ends(held[0], 0b111), Ends(held[1], 0b111), Ends(held[2], 0b010)]
    assert settle_any_order(ends, "default") == [held[1]]
    states = list(Delivery.objects.order_by("pk").values_list("state", "settled", "progress"))
    assert states == [(State.DONE, 7, 3), (State.START, None, 3), (State.START, 2, 6)]


def test_63_messages_fit() -> None:
    delivery = claimed(63)
    assert settled(delivery, set(range(0, 63, 2))) == []
    assert settled(delivery, set(range(1, 62, 2))) == []
    row = Delivery.objects.get()
    assert (row.progress, row.state) == (63, State.DONE)


@pytest.mark.parametrize(
    "change",
    [{"token": "another"}, {"state": State.RELEASED}, {"last_offset": 2}, {"settled": 8}],
    ids=str,
)
def test_who_has_lost_the_delivery_changes_nothing(change: dict[str, Any]) -> None:
    delivery = claimed(4)
    Delivery.objects.update(**change)
    before = Delivery.objects.values().get()
    assert settled(delivery, {0, 1}) == [delivery]
    assert Delivery.objects.values().get() == before
    with pytest.raises(LeaseLost):
        split(delivery, {1})
    assert Delivery.objects.values().get() == before


def test_a_try_whose_reply_was_lost_is_not_lost() -> None:
    delivery = claimed(4)
    ends = Ends(delivery, 0b1010)
    assert settle_any_order([ends], "default") == []
    delivery.settled, delivery.progress = None, 0  # as if nobody had heard of it
    assert settle_any_order([ends], "default") == []


def test_what_an_earlier_call_has_written_is_not_lost_when_more_has_ended_since() -> None:
    """While the database was away, the call gave up without a reply, and other messages ended."""
    delivery, other = claimed(4), claimed(3)
    assert settled(delivery, {1}) == []
    delivery.settled, delivery.progress = None, 0  # as if nobody had heard of it
    ends = [Ends(delivery, 0b1011), Ends(other, 0b001)]
    assert settle_any_order(ends, "default") == []
    assert settled(delivery, {0, 1, 2, 3}) == []
    assert settled(other, set(other.offsets)) == []
    assert set(Delivery.objects.values_list("state", flat=True)) == {State.DONE}
    assert audit("default") == []


def test_a_split_that_an_earlier_call_has_made_is_found() -> None:
    delivery = claimed(6)
    settled(delivery, {1})
    made = split(delivery, {2})
    assert split(delivery, {2}, tried=True) == made
    with pytest.raises(LeaseLost):
        split(delivery, {2})
    Delivery.objects.update(token="another")
    with pytest.raises(LeaseLost):
        split(delivery, {2}, tried=True)


@pytest.mark.mysql
@pytest.mark.parametrize("point", range(1, 13))
@pytest.mark.parametrize("done", [False, True])
def test_a_lost_connection_neither_repeats_nor_loses_a_part(
    point: int, done: bool, second_connection: Callable[[], Session]
) -> None:
    delivery = claimed(6)
    connection.ensure_connection()
    with Severed(point, second_connection(), done=done):
        settled(delivery, {1, 4})
        open_ = split(delivery, {2})
    ranges = [(part.first_offset, part.last_offset) for part in open_]
    assert ranges == [(0, 0), (2, 2), (3, 3), (5, 5)]
    assert parts() == {
        **{(at, at): State.START for at in (0, 2, 3, 5)},
        **{(at, at): State.DONE for at in (1, 4)},
    }


def test_when_it_expires_only_what_is_not_settled_comes_back() -> None:
    delivery = claimed(8)
    settled(delivery, {0, 1, 3, 6})
    advance(LONG_AFTER)
    sweep("default")
    assert retries() == {2: 2, 4: 2, 5: 2, 7: 2}
    assert parts() == {
        (0, 1): State.DONE,
        (3, 3): State.DONE,
        (6, 6): State.DONE,
        (2, 2): State.RETRY,
        (4, 5): State.RETRY,
        (7, 7): State.RETRY,
    }
    assert audit("default") == []
    assert settled(delivery, {2}) == [delivery]


@pytest.mark.parametrize("before", [set(), {5}], ids=["nothing", "some"])
def test_what_is_settled_while_it_is_given_up_does_not_come_back(before: set[int]) -> None:
    """An operator reads the claim; before he has locked it, its client settles more."""
    delivery = claimed(8)
    settled(delivery, before)
    read = Delivery.objects.get()
    settled(delivery, {1, 2, 3})
    assert expire(read, None, timedelta(0), given_up=True) is None
    assert not RetryMessage.objects.exists()
    assert expire(Delivery.objects.get(), None, timedelta(0), given_up=True) is not None
    assert retries().keys() == {0, 4, 5, 6, 7} - before
    assert audit("default") == []


def test_a_release_gives_each_stretch_back_whole_and_spends_no_attempt() -> None:
    delivery = claimed(8)
    settled(delivery, {2, 5})
    release(delivery)
    assert given_back() == [(0, 1), (3, 4), (6, 7)]
    assert not RetryMessage.objects.exists()
    assert audit("default") == []


def test_a_reset_leaves_settled_what_it_does_not_give_out_again() -> None:
    delivery = claimed(8)
    settled(delivery, {1, 6})
    Reset(group(), towards(Target(number=4)), "default", force=True).run()
    assert retries() == {0: 1, 2: 1, 3: 1}
    assert settled(delivery, {2}) == [delivery]
    assert audit("default") == []


def test_a_forced_purge_leaves_settled_what_it_does_not_skip() -> None:
    delivery = claimed(8)
    settled(delivery, {1, 4, 5, 7})
    Topic.objects.update(retention_count=5)
    Purge("default", force=True).run()
    assert retries() == {3: 1, 6: 1}
    done = {place for place, state in parts().items() if state == State.DONE}
    assert done == {(1, 1), (4, 5), (7, 7)}
    assert settled(delivery, {2}) == [delivery]
    assert audit("default") == []


def noted(delivery: Delivery, begun: Collection[int], done: Collection[int] = ()) -> Any:
    memory = bytearray(SLOT_SIZE)
    slot = ProgressSlot(memory, 0)
    slot.claim(delivery)
    first = delivery.first_offset
    slot.any_order(bits({*begun, *done}, first), bits(done, first))
    return read(bytes(memory), 0)


def test_after_a_death_what_had_not_begun_comes_back_at_once_with_no_attempt_spent() -> None:
    delivery = claimed(8)
    settled(delivery, {1})
    found = recover(delivery.pk, delivery.token, noted(delivery, {1, 3, 4}, {4}), "default")
    assert found is not None
    assert (found.repeated, found.released) == (1, 5)
    assert retries() == {3: 2}
    assert given_back() == [(0, 0), (2, 2), (5, 7)]
    assert {place for place, state in parts().items() if state == State.DONE} == {(1, 1), (4, 4)}
    assert audit("default") == []


def test_after_a_death_what_had_ended_and_was_not_written_is_settled() -> None:
    delivery = claimed(3)
    found = recover(delivery.pk, delivery.token, noted(delivery, (), {0, 1, 2}), "default")
    assert found is not None
    assert parts() == {(0, 2): State.DONE}
    assert audit("default") == []


def test_a_death_of_which_nothing_was_noted_gives_all_back() -> None:
    delivery = claimed(3)
    settled(delivery, {1})
    assert recover(delivery.pk, delivery.token, None, "default")
    assert given_back() == [(0, 0), (2, 2)]


def work(point: int) -> None:
    """Handle a claim from its end to its start, and give back what is left of another."""
    Guillotine(point).install()
    first = claim(5)
    for offset in reversed(first.offsets):
        note(offset)
        assert settled(first, {offset}) == []
    second = claim(5)
    for offset in (second.first_offset + 1, second.first_offset + 3):
        note(offset)
        settled(second, {offset})
    release(second)


def claim(batch: int) -> Delivery:
    delivery = Claimer(group(), CLIENT, "1", "default").claim(batch, HOUR)
    assert delivery is not None
    return delivery


def note(offset: int) -> None:
    Handled.objects.create(group=GROUP, topic=TOPIC, partition=0, offset=offset, value="")


def finish() -> None:
    """Handle, one by one, all that is left."""
    claimer = Claimer(group(), CLIENT, "2", "default")
    while True:
        retry = claimer.claim_retry(HOUR)
        delivery = retry[0] if retry else claimer.claim(1, HOUR)
        if delivery is None:
            return
        note(delivery.first_offset)
        settle(delivery, delivery.last_offset + 1, max_retries=16)


@strides(7)
def test_killed_at_any_statement_nothing_is_lost_and_only_what_was_in_hand_is_repeated(
    stride: int,
) -> None:
    for point in count(1, stride):
        start = send_ten()
        status = in_fork(partial(work, point))
        assert status in (0, -9)
        advance(LONG_AFTER)
        sweep("default")
        advance(LONG_AFTER)
        finish()
        rows = Handled.objects.filter(offset__gte=start)
        times = Counter(rows.values_list("offset", flat=True))
        assert set(times) == set(range(start, start + 10)), (point, times)
        # Between the note and its settlement one call may have been made.
        assert sum(times.values()) <= 11, (point, times)
        assert not Delivery.objects.open().exists()
        assert not RetryMessage.objects.exists()
        assert audit("default") == []
        if status == 0:
            break
    assert point > 25  # it did die at many places


def send_ten() -> int:
    send_many([Outgoing(TOPIC, n) for n in range(10)])
    sequence("default")
    group()
    end = Partition.objects.get(topic__name=TOPIC).next_offset
    return int(end) - 10
