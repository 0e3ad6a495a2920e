"""What blocks an ordered group, and how an operator lets it go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from streams import Outgoing, consumer, send_many
from streams.consume.blocked import Blocked, blockades
from streams.consume.outcome.settle import release
from streams.errors import AttemptRunning, NotBlocked, PreviewStale
from streams.log.condition import Trouble
from streams.log.standings import standings
from streams.models import (
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Message,
    Partition,
    State,
    Topic,
    UtcNow,
)
from streams.observe.audit.walk import audit
from streams.observe.trace import trace
from streams.operate.acts.unblock import Shown, retry_now, skip, what_blocks
from streams.operate.reset import Reset, towards
from streams.operate.target import Target
from streams.signals import message_dead, message_missing
from streams.steps.sweep import sweep
from streams.testing import advance, drain
from tests.consuming import LONG_AFTER, MINUTE, Process, rows

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

WHO = "ann"


class CardDeclined(Exception):
    """Is what the handlers raise."""


@pytest.fixture
def fails() -> set[int]:
    """The bodies on which the handler fails."""
    return {6}


@pytest.fixture
def handled(fails: set[int]) -> Counter[int]:
    """An ordered group that has read 0 … 5 of 10; 6 has failed once, and blocks it."""
    times: Counter[int] = Counter()

    @consumer("orders", group="mail", ordered=True, max_retries=3)
    def mail(message: Any) -> None:
        times[message.body] += 1
        if message.body in fails:
            raise CardDeclined("51: insufficient funds")

    send_many([Outgoing("orders", n, key="k") for n in range(10)])
    drain()
    return times


def group() -> ConsumerGroup:
    return ConsumerGroup.objects.select_related("topic").get()


def blocked() -> Blocked:
    (one,) = what_blocks(group(), "default").worst
    return one


def shown() -> Shown:
    return Shown.of(blocked())


def test_what_blocks_a_partition_is_read_with_its_error_and_attempts(
    handled: Counter[int],
) -> None:
    one = blocked()
    message = Message.objects.get(offset=6)
    assert (one.place, one.message, one.behind) == ("orders/0@6", message.pk, 3)
    assert one.error == "CardDeclined: 51: insufficient funds"
    assert (one.attempt, one.attempts, one.is_running) == (2, 4, False)
    failed = Delivery.objects.get(state=State.RETRY)
    assert one.since
    assert failed.finished_at
    assert abs(one.since - failed.finished_at) < MINUTE
    assert one.due_in


def test_it_is_blocked_since_its_first_failure(handled: Counter[int]) -> None:
    first = blocked().since
    advance(MINUTE)
    drain()
    one = blocked()
    assert one.attempt == 3
    assert first
    assert one.since == first - MINUTE
    assert one.age
    assert one.age > MINUTE


def test_while_the_next_attempt_runs_it_is_still_what_blocks(handled: Counter[int]) -> None:
    before = blocked()
    advance(MINUTE)
    held = Process("mail").claim()
    one = blocked()
    assert (one.offset, one.attempt, one.error) == (6, 2, before.error)
    assert (one.is_running, one.due_in, one.behind) == (True, None, 3)
    release(held)  # given back with its attempt unspent
    assert (blocked().attempt, blocked().error, blocked().is_running) == (2, before.error, False)


def test_a_process_that_dies_blocks_with_that_error(handled: Counter[int]) -> None:
    advance(MINUTE)
    held = Process("mail").claim()
    held.start(MINUTE)
    advance(LONG_AFTER)
    sweep("default")
    assert blocked().attempt == 3
    assert (blocked().error or "").startswith("ProcessDied")


def test_its_group_needs_somebody_since_the_same_time(handled: Counter[int]) -> None:
    (stand,) = standings(ConsumerGroup.objects.all(), "default")
    (need,) = stand.needs
    assert (need.trouble, need.since) == (Trouble.BLOCKED, blocked().since)


def test_a_group_that_goes_on_is_not_blocked(handled: Counter[int], fails: set[int]) -> None:
    fails.clear()
    advance(MINUTE)
    drain()
    cursor = Cursor.objects.get()
    assert (cursor.next_offset, cursor.blocked_at, cursor.last_error) == (10, None, "")
    assert blockades([group()], "default") == {}
    with pytest.raises(NotBlocked):
        what_blocks(group(), "default")


def test_of_many_blocked_partitions_the_longest_blocked_come_first(handled: Counter[int]) -> None:
    topic = Topic.objects.get()
    for number in range(1, 4):
        log = Partition.objects.create(topic=topic, number=number, next_offset=9)
        Cursor.objects.create(
            group=group(),
            partition=log,
            next_offset=4,
            attempt=3,
            blocked_at=UtcNow(-number * MINUTE),
        )
    found = blockades([group()], "default", most=2)[group().pk]
    assert found.partitions == 4
    assert [(one.place, one.message, one.behind) for one in found.worst] == [
        ("orders/3@4", None, 4),
        ("orders/2@4", None, 4),
    ]
    (one,) = what_blocks(group(), "default", 1).worst
    assert one.place == "orders/1@4"


def test_a_reset_forgets_the_failure(handled: Counter[int]) -> None:
    Reset(group(), towards(Target.parse("6")), "default").run()
    assert blockades([group()], "default") == {}
    cursor = Cursor.objects.get()
    assert (cursor.blocked_at, cursor.last_error) == (None, "")


@pytest.fixture
def ended(handled: Counter[int], fails: set[int]) -> Counter[int]:
    """A group at the end of the log; an older release has left there what it does not know."""
    fails.clear()
    advance(MINUTE)
    drain()
    Cursor.objects.update(blocked_at=UtcNow(), last_error="CardDeclined")
    return handled


def test_what_failed_before_the_end_of_the_log_blocks_nothing(ended: Counter[int]) -> None:
    assert blockades([group()], "default") == {}
    assert not Cursor.objects.get().is_blocked
    for verb in (retry_now, partial(skip, who=WHO)):
        with pytest.raises(NotBlocked, match="does not block"):
            verb(group(), Shown(0, 10, 1), "default")
    send_many([Outgoing("orders", 10, key="k")])
    drain()
    assert ended[10] == 1
    assert audit("default") == []


def test_a_reset_to_the_same_place_forgets_what_failed_before(ended: Counter[int]) -> None:
    Reset(group(), towards(Target.parse("10")), "default").run()
    cursor = Cursor.objects.get()
    assert (cursor.blocked_at, cursor.last_error) == (None, "")


@pytest.mark.exhaustive
def test_more_partitions_than_one_statement_takes_are_described(handled: Counter[int]) -> None:
    topic, count = Topic.objects.get(), 1100
    logs = [Partition(topic=topic, number=n, next_offset=9) for n in range(1, count)]
    Partition.objects.bulk_create(logs)
    places = Partition.objects.exclude(number=0).order_by("number")
    times = {"attempt": 3, "blocked_at": UtcNow()}
    Cursor.objects.bulk_create(Cursor(group=group(), partition=log, **times) for log in places)
    found = blockades([group()], "default", most=count)[group().pk]
    assert [one.partition for one in found.worst] == list(range(count))
    assert found.worst[0].message


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("failed", [True, False])
@pytest.mark.parametrize("attempt", [1, 2])
@pytest.mark.parametrize("open_delivery", [None, 7])
@pytest.mark.parametrize("offset", [9, 10])
def test_a_row_of_a_cursor_and_a_query_agree_on_what_is_blocked(
    handled: Counter[int],
    ordered: bool,
    failed: bool,
    attempt: int,
    open_delivery: int | None,
    offset: int,
) -> None:
    ConsumerGroup.objects.update(ordered=ordered)
    Cursor.objects.update(
        next_offset=offset,
        attempt=attempt,
        open_delivery=open_delivery,
        blocked_at=UtcNow() if failed else None,
    )
    found = Cursor.objects.get().is_blocked
    runs = open_delivery is not None
    there = offset < 10 if not runs else attempt > 1
    assert found == (ordered and there and (failed or attempt > 1))
    assert Cursor.objects.blocked().exists() == found


# -- retry now --


def test_retry_now_lets_the_next_attempt_begin_at_once(
    handled: Counter[int], fails: set[int]
) -> None:
    drain()
    assert handled[6] == 1  # its time has not come
    fails.clear()
    retry_now(group(), shown(), "default")
    drain()
    assert handled == Counter([*range(10), 6])
    assert audit("default") == []


def test_retry_now_spends_no_attempt_by_itself(handled: Counter[int]) -> None:
    retry_now(group(), shown(), "default")
    one = blocked()
    assert (one.attempt, one.due_at, one.error) == (2, None, "CardDeclined: 51: insufficient funds")


# -- skip --


def test_a_skipped_message_is_a_dead_letter_and_the_next_one_is_handled(
    handled: Counter[int],
) -> None:
    assert skip(group(), shown(), "default", WHO)
    letter = DeadMessage.objects.get()
    assert (letter.offset, letter.attempts, letter.redriven_at) == (6, 1, None)
    assert (letter.error_class, letter.error) == ("CardDeclined", "51: insufficient funds")
    assert bytes(letter.body) == b"6"
    cursor = Cursor.objects.get()
    assert (cursor.next_offset, cursor.attempt, cursor.blocked_until) == (7, 1, None)
    assert (cursor.blocked_at, cursor.last_error) == (None, "")
    cover = Delivery.objects.get(state=State.SKIPPED)
    assert list(cover.offsets) == [6]
    assert (cover.client_id, cover.thread, cover.dead, cover.missing) == (WHO, "skip", 1, 0)
    assert audit("default") == []
    drain()
    assert handled == Counter(range(10))
    assert audit("default") == []


def test_the_trace_says_that_it_was_skipped_and_is_dead(handled: Counter[int]) -> None:
    skip(group(), shown(), "default", WHO)
    (traced,) = trace(Message.objects.select_related("partition__topic").get(offset=6))
    assert [one.outcome for one in traced.attempts] == ["failed", "skipped"]
    assert traced.state == "dead"


def test_a_message_that_is_gone_from_the_log_is_skipped_as_missing(
    handled: Counter[int], receivers: list[Any]
) -> None:
    place = shown()
    Message.objects.filter(offset=6).delete()
    assert not skip(group(), place, "default", WHO)
    assert not DeadMessage.objects.exists()
    cover = Delivery.objects.get(state=State.SKIPPED)
    assert (cover.dead, cover.missing) == (0, 1)
    assert Cursor.objects.get().next_offset == 7
    (told,) = receivers
    assert (told["signal"], told["offsets"], told["group"]) == (message_missing, (6,), "mail")


def test_a_skip_is_told_as_every_dead_letter(handled: Counter[int], receivers: list[Any]) -> None:
    skip(group(), shown(), "default", WHO)
    (told,) = receivers
    assert (told["signal"], told["offset"], told["attempt"]) == (message_dead, 6, 1)
    assert "insufficient funds" in str(told["error"])


@pytest.fixture
def receivers() -> Iterator[list[Any]]:
    heard: list[Any] = []

    def hear(**values: Any) -> None:
        heard.append(values)

    for one in (message_dead, message_missing):
        one.connect(hear)
    yield heard
    for one in (message_dead, message_missing):
        one.disconnect(hear)


@pytest.mark.parametrize("verb", [retry_now, partial(skip, who=WHO)])
class TestWhatWasShown:
    """Both verbs do exactly what was shown, or nothing."""

    def test_a_message_that_has_failed_again_is_refused(
        self, handled: Counter[int], verb: Any
    ) -> None:
        place = shown()
        advance(MINUTE)
        drain()
        self.refused(verb, place, PreviewStale, "attempt 3 is next")

    def test_a_message_that_runs_just_now_is_refused(
        self, handled: Counter[int], verb: Any
    ) -> None:
        place = shown()
        advance(MINUTE)
        Process("mail").claim()
        self.refused(verb, place, AttemptRunning, "just now")

    def test_another_message_that_blocks_now_is_refused(
        self, handled: Counter[int], fails: set[int], verb: Any
    ) -> None:
        place = shown()
        fails.symmetric_difference_update({6, 8})
        advance(MINUTE)
        drain()
        self.refused(verb, place, NotBlocked, "offset 8")

    def test_a_group_that_has_gone_on_is_refused(
        self, handled: Counter[int], fails: set[int], verb: Any
    ) -> None:
        place = shown()
        fails.clear()
        advance(MINUTE)
        drain()
        self.refused(verb, place, NotBlocked, "does not block")

    def test_a_partition_that_is_not_there_is_refused(
        self, handled: Counter[int], verb: Any
    ) -> None:
        self.refused(verb, Shown(7, 6, 2), NotBlocked, "No message blocks")

    @staticmethod
    def refused(verb: Any, place: Shown, error: type[Exception], text: str) -> None:
        tables = (Cursor, Delivery, DeadMessage)
        before = rows(*tables)
        with pytest.raises(error, match=text):
            verb(group(), place, "default")
        assert rows(*tables) == before
