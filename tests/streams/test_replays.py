"""A replay gives a group a part of the log again, beside what it reads."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from streams import Outgoing, consumer, send, send_many
from streams.consume import registry
from streams.consume.outcome.settle import settle
from streams.errors import (
    GroupMismatch,
    LeaseLost,
    OffsetOutOfRange,
    UnknownGroup,
    UnknownPartition,
    UnknownReplay,
)
from streams.log.lag import lags
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
    Topic,
    UtcNow,
)
from streams.observe.audit.walk import audit
from streams.observe.trace import trace
from streams.operate.group_deletion import delete_group
from streams.operate.replay import Replay, Span, cancel, replays, span_of, spans, start
from streams.operate.target import Target
from streams.testing import advance, drain
from tests.consuming import Process, rows

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

HOUR = timedelta(hours=1)
MESSAGES = 20


@pytest.fixture
def seen() -> Counter[int]:
    """How often the group "mail" has been given each offset; it has read all 20."""
    times: Counter[int] = Counter()
    mail(times)
    send_many([Outgoing("orders", n) for n in range(MESSAGES)])
    drain()
    times.clear()
    return times


def mail(times: Counter[int], *, fails: set[int] | None = None, **options: Any) -> None:
    registry._registered.clear()

    @consumer("orders", group="mail", max_retries=2, **options)
    def handle(message):
        times[message.offset] += 1
        if fails and message.offset in fails:
            raise ValueError("no")


def group() -> ConsumerGroup:
    return ConsumerGroup.objects.select_related("topic").get(name="mail")


def chosen(first: str, end: str, **options: Any) -> list[Span]:
    return spans(group(), Target.parse(first), Target.parse(end), "default", **options)


def replay(first: int, end: int) -> int:
    return start(group(), chosen(str(first), str(end)), "default")


def shown() -> list[tuple[int, int, int, str]]:
    """Number, given out, open and state of each replay."""
    found: list[Replay] = replays([group()], "default")
    return [(one.number, one.given_out, one.open, one.state) for one in found]


# -- what is given out --


def test_the_group_sees_the_part_again_and_its_own_cursor_stays(seen: Counter[int]) -> None:
    own = rows(Cursor)
    assert replay(5, 9) == 1
    drain()
    assert seen == Counter([5, 6, 7, 8])
    assert [row for row in rows(Cursor) if not row["replay"]] == own
    replayed = Delivery.objects.get(kind=Kind.REPLAY)
    assert (replayed.first_offset, replayed.last_offset, replayed.attempt) == (5, 8, 1)
    assert audit("default") == []


def test_a_replay_and_new_messages_are_both_given_out(seen: Counter[int]) -> None:
    replay(0, 4)
    send_many([Outgoing("orders", n) for n in range(3)])
    drain()
    assert seen == Counter([0, 1, 2, 3, 20, 21, 22])
    assert audit("default") == []


def test_a_part_of_the_log_is_named_by_times(seen: Counter[int]) -> None:
    for offset, hours in ((7, 5), (8, 3), (9, 2)):
        Message.objects.filter(offset__lte=offset).filter(
            sequenced_at__gt=UtcNow(-HOUR * hours)
        ).update(sequenced_at=UtcNow(-HOUR * hours))
    now = timezone.now()
    found = chosen((now - 4 * HOUR).isoformat(), (now - HOUR).isoformat())
    assert [str(span) for span in found] == ["orders/0@8-9"]


def test_one_message_is_replayed_by_its_id(seen: Counter[int]) -> None:
    message = Message.objects.get(offset=7)
    found = span_of(group(), message.pk, "default")
    assert [str(span) for span in found] == ["orders/0@7"]
    start(group(), found, "default")
    drain()
    assert seen == Counter([7])


def test_nothing_is_replayed_to_a_group_that_was_deleted_meanwhile(seen: Counter[int]) -> None:
    deleted, wanted = group(), chosen("5", "9")
    delete_group(group())
    with pytest.raises(UnknownGroup, match="no group mail any more"):
        start(deleted, wanted, "default")
    assert not Cursor.objects.exists()


def test_a_message_that_is_not_in_the_log_of_the_group_is_refused(seen: Counter[int]) -> None:
    send("orders", 1)
    send("flights", 1)
    newest = Message.objects.order_by("-pk")
    for pk, text in (
        (newest[0].pk, "There is no message"),  # of another topic
        (newest[1].pk, "has not been sequenced yet"),
        (newest[0].pk + 99, "There is no message"),
    ):
        with pytest.raises(OffsetOutOfRange, match=text):
            span_of(group(), pk, "default")
    Partition.objects.update(first_offset=5)
    with pytest.raises(OffsetOutOfRange, match=r"begins at offset 5: orders/0@4 is not there"):
        span_of(group(), Message.objects.get(offset=4).pk, "default")


def test_what_is_not_in_the_log_is_refused_when_asked_for_and_when_begun(
    seen: Counter[int],
) -> None:
    Partition.objects.update(first_offset=3)
    for first, end, text in (
        ("2", "6", "begins at offset 3: orders/0@2-5 is not there any more"),
        ("6", "21", "ends before offset 20: orders/0@6-20 is not all there yet"),
        ("6", "6", "no message between the two targets"),
        ("8", "6", "no message between the two targets"),
    ):
        with pytest.raises(OffsetOutOfRange, match=text):
            chosen(first, end)
    found = chosen("4", "6")
    Partition.objects.update(first_offset=5)  # a purge in between
    with pytest.raises(OffsetOutOfRange, match="begins at offset 5"):
        start(group(), found, "default")
    assert shown() == []
    with pytest.raises(UnknownPartition):
        chosen("5", "6", number=1)


def test_a_broadcast_group_is_refused(seen: Counter[int]) -> None:
    ConsumerGroup.objects.update(mode="broadcast")
    with pytest.raises(GroupMismatch, match="nothing can be replayed to it"):
        replay(5, 9)


def test_a_replay_by_time_is_about_every_partition_and_one_number(seen: Counter[int]) -> None:
    second = Partition.objects.create(topic=Topic.objects.get(), number=1)
    Cursor.objects.create(group=group(), partition=second)
    send_many([Outgoing("orders", n, partition=1) for n in range(3)])
    drain()
    seen.clear()
    ago = (timezone.now() - HOUR).isoformat()
    later = (timezone.now() + HOUR).isoformat()
    found = chosen(ago, later)
    assert [str(span) for span in found] == ["orders/0@0-19", "orders/1@0-2"]
    assert [str(span) for span in chosen(ago, later, number=1)] == ["orders/1@0-2"]
    start(group(), found, "default")
    drain()
    assert sum(seen.values()) == 23
    assert [(one.number, one.span.partition.number) for one in replays([group()], "default")] == [
        (1, 0),
        (1, 1),
    ]
    assert audit("default") == []


# -- what fails --


def test_what_fails_again_is_retried_and_dies_again(seen: Counter[int]) -> None:
    mail(seen, fails={6})
    replay(5, 8)
    drain()
    row = RetryMessage.objects.get()
    assert (row.offset, row.attempt) == (6, 2)
    assert audit("default") == []
    for _attempt in range(2):
        advance(HOUR)
        drain()
    assert seen == Counter([5, 7] + [6] * 3)
    assert DeadMessage.objects.get().attempts == 3
    assert audit("default") == []


def test_a_failure_keeps_the_higher_attempt_of_a_retry_that_waits(seen: Counter[int]) -> None:
    mail(seen, fails={6})
    RetryMessage.objects.create(
        group=group(),
        partition=Partition.objects.get(),
        offset=6,
        attempt=3,
        due_at=UtcNow(HOUR),
    )
    replay(5, 8)
    drain()
    row = RetryMessage.objects.get()
    assert (row.offset, row.attempt) == (6, 3)
    assert row.due_at < timezone.now() + timedelta(minutes=5)  # the earlier time


def test_a_lost_failure_of_a_replay_is_found(seen: Counter[int]) -> None:
    mail(seen, fails={6})
    replay(5, 8)
    drain()
    RetryMessage.objects.all().delete()
    (finding,) = audit("default")
    assert finding.kind == "lost failure"
    # A later replay gives it out again.
    mail(seen)
    replay(6, 7)
    drain()
    assert audit("default") == []


def test_what_a_replay_has_passed_is_covered(seen: Counter[int]) -> None:
    replay(5, 12)
    Process("mail").claim(4)
    Delivery.objects.filter(kind=Kind.REPLAY).delete()
    (finding,) = audit("default")
    assert str(finding) == "uncovered in mail on orders/0, replay 1: offsets 5 … 8 (4)"


def test_a_replay_covers_nothing_for_the_group_itself(seen: Counter[int]) -> None:
    replay(0, 20)
    drain()
    Delivery.objects.filter(kind=Kind.NEW, first_offset=10).delete()
    assert "uncovered" in {finding.kind for finding in audit("default")}


# -- progress --


def test_progress_is_visible_while_it_runs_and_after(seen: Counter[int]) -> None:
    replay(5, 12)
    assert shown() == [(1, 0, 0, "running")]
    process = Process("mail")
    first, second = process.claim(4), process.claim(4)
    assert (second.first_offset, second.last_offset) == (9, 11)
    assert shown() == [(1, 7, 7, "finishing")]
    settle(first, 7, max_retries=2)
    assert shown() == [(1, 7, 5, "finishing")]
    settle(first, 9, max_retries=2)
    settle(second, 12, max_retries=2)
    assert shown() == [(1, 7, 0, "done")]
    assert audit("default") == []


def test_a_replay_that_has_ended_is_forgotten_with_the_next_one(seen: Counter[int]) -> None:
    replay(5, 6)
    replay(6, 7)
    assert shown() == [(2, 0, 0, "running"), (1, 0, 0, "running")]
    drain()
    assert [state for *_rest, state in shown()] == ["done", "done"]
    assert replay(7, 8) == 3
    assert shown() == [(3, 0, 0, "running")]
    assert audit("default") == []


def test_replays_are_no_lag(seen: Counter[int]) -> None:
    Message.objects.update(sequenced_at=UtcNow(-HOUR))
    replay(5, 12)
    (before,) = lags([group()], "default")
    assert (before.behind, before.open, before.age) == (0, 0, None)
    Process("mail").claim(4)
    (now,) = lags([group()], "default")
    assert (now.behind, now.open, now.age) == (0, 4, None)


def test_the_trace_of_a_message_tells_of_the_replay(seen: Counter[int]) -> None:
    def state(offset: int) -> str:
        message = Message.objects.select_related("partition").get(offset=offset)
        return trace(message)[0].state

    replay(5, 12)
    assert (state(4), state(5), state(12)) == ("done", "waiting to be claimed by replay 1", "done")
    drain()
    assert state(5) == "done"


# -- cancelled --


def test_a_cancelled_replay_gives_out_nothing_more(seen: Counter[int]) -> None:
    replay(5, 12)
    held = Process("mail").claim(3)
    assert cancel(group(), 1, "default") == 4
    assert shown() == [(1, 3, 3, "cancelled")]
    settle(held, 8, max_retries=2)  # what is in hand is finished
    assert audit("default") == []
    drain()
    assert not seen
    skipped = Delivery.objects.get(state=State.SKIPPED)
    assert (skipped.kind, skipped.first_offset, skipped.last_offset) == (Kind.REPLAY, 8, 11)
    with pytest.raises(UnknownReplay, match="mail on orders has no replay 1 that is running"):
        cancel(group(), 1, "default")
    assert replay(0, 1) == 2
    assert len(shown()) == 1


@pytest.mark.parametrize("number", [0, 2, -1])
def test_only_a_replay_can_be_cancelled(seen: Counter[int], number: int) -> None:
    replay(5, 12)
    before = rows(Cursor, Delivery)
    with pytest.raises(UnknownReplay):
        cancel(group(), number, "default")
    assert rows(Cursor, Delivery) == before


def test_the_end_of_a_replay_hides_no_lost_failure_of_the_group(seen: Counter[int]) -> None:
    mail(seen, fails={20})
    send("orders", 1)
    drain()
    replay(20, 21)
    cancel(group(), 1, "default")
    RetryMessage.objects.all().delete()
    assert [finding.kind for finding in audit("default")] == ["lost failure"]


# -- ordered groups --


@pytest.fixture
def in_order() -> Counter[int]:
    times: Counter[int] = Counter()
    mail(times, ordered=True)
    send_many([Outgoing("orders", n, key="k") for n in range(MESSAGES)])
    drain()
    times.clear()
    return times


def test_a_replay_to_an_ordered_group_is_in_order_too(in_order: Counter[int]) -> None:
    mail(in_order, fails={6}, ordered=True)
    replay(5, 8)
    drain()
    assert in_order == Counter([5, 6])
    assert shown() == [(1, 1, 0, "running")]  # 6 blocks it
    assert audit("default") == []
    send("orders", 1, key="k")
    drain()
    assert in_order == Counter([5, 6, 20])  # and nothing else
    mail(in_order, ordered=True)
    advance(HOUR)
    drain()
    assert in_order == Counter([5, 6, 6, 7, 20])
    assert shown() == [(1, 3, 0, "done")]
    assert audit("default") == []


def test_a_cancelled_replay_is_taken_from_who_holds_it_in_order(in_order: Counter[int]) -> None:
    replay(5, 12)
    held = Process("mail").claim(4)
    settle(held, 7, max_retries=2)
    assert cancel(group(), 1, "default") == 5  # 7 and 8, which were in hand, among them
    with pytest.raises(LeaseLost):
        settle(held, 9, max_retries=2)
    assert shown() == [(1, 2, 0, "cancelled")]
    assert audit("default") == []
    drain()
    assert not in_order


def test_what_failed_in_a_replay_in_order_is_given_up_when_it_is_cancelled(
    in_order: Counter[int],
) -> None:
    mail(in_order, fails={6}, ordered=True)
    replay(5, 8)
    drain()
    assert cancel(group(), 1, "default") == 2
    assert audit("default") == []
    advance(HOUR)
    drain()
    assert in_order == Counter([5, 6])


def test_a_purge_is_held_by_a_replay_and_not_by_one_that_has_ended(seen: Counter[int]) -> None:
    from streams.retain.purge import Purge

    Topic.objects.update(retention_count=1)
    replay(5, 7)
    Purge("default").run()
    assert Partition.objects.get().first_offset == 5
    drain()
    Purge("default").run()
    assert Partition.objects.get().first_offset == 19
    assert sequence("default").sequenced == 0
    assert seen == Counter([5, 6])
