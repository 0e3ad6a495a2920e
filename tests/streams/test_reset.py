"""A reset gives a group what lies past its target again, once, and loses nothing by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from streams import Outgoing, consumer, send_many
from streams.consume import registry
from streams.consume.outcome.dead_letter import redrive
from streams.consume.outcome.settle import release, settle
from streams.consume.subscription import subscribe
from streams.errors import (
    GroupActive,
    GroupMismatch,
    LeaseLost,
    NothingToUndo,
    OffsetOutOfRange,
    UnknownPartition,
)
from streams.log.sequencer import sequence
from streams.models import (
    Consumer,
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
from streams.models.consumer import LEASE
from streams.observe.audit.walk import audit
from streams.operate.replay import Span, start
from streams.operate.reset import CursorMove, Reset, towards
from streams.operate.target import Target
from streams.testing import advance, drain
from tests.consuming import LONG_AFTER, Process, fail, registered, rows

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

HOUR = timedelta(hours=1)
MESSAGES = 20

Reader = Callable[..., Counter[int]]


@pytest.fixture
def seen() -> Counter[int]:
    """How often the group "mail" has been given each offset; it has read all 20, one failed."""
    times: Counter[int] = Counter()
    mail(times, fails={15})
    send_many([Outgoing("orders", n) for n in range(MESSAGES)])
    drain()
    assert times == Counter(range(MESSAGES))
    return times


def mail(times: Counter[int], *, fails: set[int] = frozenset(), **options: Any) -> None:  # type: ignore[assignment]
    registry._registered.clear()

    @consumer("orders", group="mail", max_retries=5, **options)
    def handle(message):
        times[message.offset] += 1
        if message.offset in fails:
            raise ValueError("no")


def group() -> ConsumerGroup:
    return ConsumerGroup.objects.select_related("topic").get(name="mail")


def reset(to: str | None, **options: Any) -> CursorMove:
    """Reset the group in its one partition."""
    goal = None if to is None else towards(Target.parse(to))
    expected = Reset(group(), goal, "default", **options).preview()
    (move,) = Reset(group(), goal, "default", **options).run()
    assert str(move) == str(*expected)  # what was done is what the preview said
    return move


def position() -> int:
    return Cursor.objects.get(replay=0).next_offset


def waiting() -> list[int]:
    found = RetryMessage.objects.filter(delivery=None).order_by("offset")
    return [row.offset for row in found]


# -- where to --


@pytest.mark.parametrize(
    ("to", "offset"), [("earliest", 3), ("latest", 20), ("7", 7), ("-4", 16), ("+0", 20)]
)
def test_a_group_goes_on_from_the_target(seen: Counter[int], to: str, offset: int) -> None:
    Partition.objects.update(first_offset=3)
    reset(to)
    assert position() == offset
    drain()
    again = {o: n for o, n in seen.items() if n > 1}
    assert again == dict.fromkeys(range(offset, MESSAGES), 2)


def test_a_group_goes_back_to_a_time(seen: Counter[int]) -> None:
    Message.objects.filter(offset__lt=12).update(sequenced_at=UtcNow(-2 * HOUR))
    move = reset((timezone.now() - HOUR).isoformat())
    assert (move.position, move.target, move.again, position()) == (20, 12, 8, 12)


def test_what_lies_before_the_log_or_after_it_is_refused(seen: Counter[int]) -> None:
    Partition.objects.update(first_offset=3)
    before = rows(Cursor, Delivery, RetryMessage)
    for to, text in (
        ("2", r"orders/0 begins at offset 3: there is no 2 any more"),
        ("-18", "begins at offset 3"),
        ("21", r"orders/0 ends before offset 20: there is no 21 yet"),
        ("+1", "ends before offset 20"),
    ):
        for act in (Reset.run, Reset.preview):
            with pytest.raises(OffsetOutOfRange, match=text):
                act(Reset(group(), towards(Target.parse(to)), "default"))
    assert rows(Cursor, Delivery, RetryMessage) == before


def test_each_partition_goes_its_own_way_and_all_or_none(seen: Counter[int]) -> None:
    topic = group().topic
    second = Partition.objects.create(topic=topic, number=1)
    Cursor.objects.create(group=group(), partition=second)
    moves = Reset(group(), towards(Target.parse("earliest")), "default").run()
    assert [(m.partition.number, m.position, m.target) for m in moves] == [(0, 20, 0), (1, 0, 0)]
    with pytest.raises(OffsetOutOfRange):
        Reset(group(), towards(Target.parse("5")), "default").run()  # there are no 5 in the second
    assert [c.next_offset for c in Cursor.objects.order_by("partition")] == [0, 0]
    Reset(group(), towards(Target.parse("5")), "default", number=0).run()
    assert [c.next_offset for c in Cursor.objects.order_by("partition")] == [5, 0]
    with pytest.raises(UnknownPartition):
        Reset(group(), towards(Target.parse("5")), "default", number=2).run()


# -- back --


def test_what_is_given_out_again_is_not_retried_besides(seen: Counter[int]) -> None:
    assert waiting() == [15]
    move = reset("10")
    assert (move.again, move.retries, waiting()) == (10, 1, [])
    assert audit("default") == []
    mail(seen)
    advance(HOUR)
    drain()
    assert seen == Counter([*range(MESSAGES), *range(10, MESSAGES)])
    assert audit("default") == []


def test_a_retry_before_the_target_stays(seen: Counter[int]) -> None:
    assert reset("16").retries == 0
    assert waiting() == [15]
    assert audit("default") == []


def test_what_fails_again_begins_with_the_first_attempt(seen: Counter[int]) -> None:
    advance(HOUR)
    drain()
    assert RetryMessage.objects.get().attempt == 3
    reset("15")
    drain()
    assert RetryMessage.objects.get().attempt == 2
    assert audit("default") == []


def test_who_holds_a_delivery_past_the_target_loses_it(seen: Counter[int]) -> None:
    mail(seen, batch=4)
    send_many([Outgoing("orders", n) for n in range(8)])
    sequence("default")
    process = Process("mail")
    before, after = process.claim(4), process.claim(4)
    move = reset("22", force=True)
    assert [one.pk for one in move.fenced] == [before.pk, after.pk]
    untouched = rows(Delivery, RetryMessage, DeadMessage, Cursor)
    for delivery in (before, after):
        with pytest.raises(LeaseLost):
            settle(delivery, delivery.last_offset + 1, max_retries=5)
        with pytest.raises(LeaseLost):
            release(delivery)
        assert not delivery.extend(HOUR)
    assert rows(Delivery, RetryMessage, DeadMessage, Cursor) == untouched
    assert audit("default") == []


def test_what_was_given_back_is_taken_too(seen: Counter[int]) -> None:
    send_many([Outgoing("orders", n) for n in range(6)])
    sequence("default")
    release(Process("mail").claim(6))
    reset("23", force=True)
    assert not Delivery.objects.given_back().exists()
    assert RetryMessage.objects.filter(offset__in=(20, 21, 22), attempt=1).count() == 3
    assert audit("default") == []
    drain()
    assert {o: seen[o] for o in range(20, 26)} == dict.fromkeys(range(20, 26), 1)
    assert audit("default") == []


def test_of_a_delivery_across_the_target_each_message_comes_again_once(seen: Counter[int]) -> None:
    send_many([Outgoing("orders", n) for n in range(6)])
    sequence("default")
    held = Process("mail").claim(6)
    settle(held, 22, max_retries=5)  # 20 and 21 are done
    move = reset("23", force=True)
    assert (move.given_back, waiting()) == (1, [15, 22])
    assert RetryMessage.objects.get(offset=22).attempt == 1  # unspent
    assert audit("default") == []
    drain()
    assert {o: seen[o] for o in range(20, 26)} == {22: 1, 23: 1, 24: 1, 25: 1, 20: 0, 21: 0}
    assert audit("default") == []


def test_a_retry_in_hand_is_taken_too(seen: Counter[int]) -> None:
    advance(HOUR)
    held, _row = Process("mail").claim_retry()
    assert len(reset("15", force=True).fenced) == 1
    assert not RetryMessage.objects.exists()
    with pytest.raises(LeaseLost):
        settle(held, 16, max_retries=5)
    assert audit("default") == []
    mail(seen)
    drain()
    assert seen[15] == 2
    assert audit("default") == []


def test_what_another_group_or_partition_has_is_left_alone(seen: Counter[int]) -> None:
    @consumer("orders", group="bill")
    def bill(message):
        raise ValueError("no")

    send_many([Outgoing("orders", 1)])
    drain("bill")
    advance(HOUR)
    held, _row = Process("bill").claim_retry()
    reset("earliest")
    assert RetryMessage.objects.filter(group__name="bill").count() == 21
    settle(held, held.last_offset + 1, max_retries=5)
    assert audit("default") == []


def test_a_redriven_letter_comes_once_and_the_last_copy_of_a_body_is_kept(
    seen: Counter[int],
) -> None:
    registry._registered.clear()
    consumer("orders", group="mail", max_retries=0)(fail)
    advance(HOUR)
    drain()
    assert reset("13").again == 7
    drain()
    letters = DeadMessage.objects.order_by("offset")
    assert [letter.offset for letter in letters] == [13, 14, 15, 15, 16, 17, 18, 19]
    for letter in letters:
        redrive(letter)
    Message.objects.filter(offset=17).delete()
    assert reset("13").retries == 6
    assert waiting() == [17]  # only the letter has it
    mail(seen)
    drain()
    assert {o: seen[o] for o in range(13, 20)} == {13: 2, 14: 2, 15: 2, 16: 2, 17: 2, 18: 2, 19: 2}
    found = {str(finding.kind) for finding in audit("default")}
    assert found == {"hole", "retry without body"}  # of the message that was deleted


def test_a_redriven_letter_in_hand_waits_again_if_it_has_the_only_copy(seen: Counter[int]) -> None:
    registry._registered.clear()
    consumer("orders", group="mail", max_retries=0)(fail)
    advance(HOUR)
    drain()
    redrive(DeadMessage.objects.get())
    Message.objects.filter(offset=15).delete()
    held, _row = Process("mail").claim_retry()
    assert [one.pk for one in reset("10", force=True).fenced] == [held.pk]
    assert waiting() == [15]
    assert [finding.kind for finding in audit("default")] == ["hole"]


def test_a_replay_in_hand_is_not_taken(seen: Counter[int]) -> None:
    start(group(), [Span(Partition.objects.get(), 12, 16)], "default")
    held = Process("mail").claim(4)
    assert reset("10", force=True).fenced == []
    settle(held, 16, max_retries=5)
    assert audit("default") == []


def test_a_group_that_started_late_may_go_back_before_its_start() -> None:
    send_many([Outgoing("orders", n) for n in range(5)])
    sequence("default")
    times: Counter[int] = Counter()
    mail(times, start="latest")
    subscribe(registered("orders", "mail"), "default")
    drain()
    assert not times
    reset("2")
    drain()
    assert times == Counter([2, 3, 4])
    assert Cursor.objects.get().start_offset == 2
    assert audit("default") == []
    Delivery.objects.filter(first_offset=2).delete()
    assert [finding.kind for finding in audit("default")] == ["uncovered"]


def test_what_is_given_out_anew_is_accounted_for_anew(seen: Counter[int]) -> None:
    """Its first deliveries may have been purged; the new ones must be there."""
    Cursor.objects.update(log_offset=15)
    Delivery.objects.filter(last_offset__lt=15).delete()
    reset("5")
    drain()
    assert audit("default") == []
    Delivery.objects.filter(first_offset=5).delete()
    assert [finding.kind for finding in audit("default")] == ["uncovered"]


# -- on --


def test_what_is_skipped_is_covered_and_never_given_out(seen: Counter[int]) -> None:
    send_many([Outgoing("orders", n) for n in range(3000)])
    sequence("default")
    move = reset("latest")
    assert (move.skipped, move.again) == (3000, 0)
    skipped = Delivery.objects.get(state=State.SKIPPED)
    assert (skipped.kind, skipped.first_offset, skipped.last_offset) == (Kind.NEW, 20, 3019)
    drain()
    assert max(seen) == 19
    assert audit("default") == []
    skipped.delete()
    assert [finding.kind for finding in audit("default")] == ["uncovered"]


def test_a_retry_within_or_before_what_is_skipped_is_still_retried(seen: Counter[int]) -> None:
    reset("10")
    RetryMessage.objects.create(
        group=group(), partition=Partition.objects.get(), offset=12, due_at=UtcNow()
    )
    RetryMessage.objects.create(
        group=group(), partition=Partition.objects.get(), offset=5, due_at=UtcNow()
    )
    assert reset("latest").retries == 0
    assert waiting() == [5, 12]
    drain()
    assert (seen[5], seen[12], seen[13]) == (2, 2, 1)
    assert audit("default") == []


def test_what_is_in_hand_before_a_skip_is_finished(seen: Counter[int]) -> None:
    send_many([Outgoing("orders", n) for n in range(8)])
    sequence("default")
    held = Process("mail").claim(4)
    assert reset("latest", force=True).fenced == []
    settle(held, 24, max_retries=5)
    held.refresh_from_db()
    assert held.state == State.DONE
    assert audit("default") == []


# -- undo --


def test_undo_goes_back_to_where_the_group_was_and_undo_again_forth(seen: Counter[int]) -> None:
    reset("5")
    assert (reset(None).target, position()) == (20, 20)
    drain()
    assert seen == Counter(range(MESSAGES))
    assert (reset(None).target, position()) == (5, 5)
    drain()
    assert seen == Counter([*range(MESSAGES), *range(5, MESSAGES)])
    assert audit("default") == []


def test_undo_of_a_skip_gives_out_what_was_skipped(seen: Counter[int]) -> None:
    send_many([Outgoing("orders", n) for n in range(4)])
    sequence("default")
    reset("latest")
    move = reset(None)
    assert (move.again, position()) == (4, 20)
    drain()
    assert seen == Counter(range(MESSAGES + 4))
    assert audit("default") == []


def test_undo_restores_what_waited_and_what_was_in_hand(seen: Counter[int]) -> None:
    advance(HOUR)
    drain()  # the second attempt of 15
    before: dict[str, Any] = {**RetryMessage.objects.values().get()}
    send_many([Outgoing("orders", n) for n in range(6)])
    sequence("default")
    held = Process("mail").claim(6)
    settle(held, 22, max_retries=5)
    reset("10", force=True)
    assert audit("default") == []
    move = reset(None, force=True)
    assert (move.restored, waiting()) == (5, [15, 22, 23, 24, 25])
    after: dict[str, Any] = {**RetryMessage.objects.filter(offset=15).values().get()}
    assert abs(after.pop("due_at") - before.pop("due_at")) < timedelta(seconds=2)
    del before["id"], after["id"]
    assert after == before
    assert audit("default") == []
    drain()
    assert {o: seen[o] for o in range(20, 26)} == {20: 0, 21: 0, 22: 1, 23: 1, 24: 1, 25: 1}
    assert seen[15] == 2
    advance(HOUR)
    drain()
    assert seen[15] == 3


def test_undo_restores_nothing_that_was_given_out_meanwhile(seen: Counter[int]) -> None:
    reset("12")
    mail(seen, batch=4)
    held = Process("mail").claim(4)  # 12 … 15: with it the retry of 15 is done with
    settle(held, 16, max_retries=5)
    move = reset(None, force=True)
    assert (move.position, move.target, move.restored) == (16, 20, 0)
    assert waiting() == []
    assert audit("default") == []


def test_undo_restores_the_rest_of_what_was_in_hand_and_given_out_in_part(
    seen: Counter[int],
) -> None:
    send_many([Outgoing("orders", n) for n in range(6)])
    sequence("default")
    Process("mail").claim(6)
    reset("20", force=True)
    settle(Process("mail").claim(3), 23, max_retries=5)
    move = reset(None, force=True)
    assert (move.position, move.target, move.restored) == (23, 26, 3)
    assert waiting() == [15, 23, 24, 25]
    assert audit("default") == []


def test_undo_is_about_the_last_reset_only(seen: Counter[int]) -> None:
    reset("10")  # takes the retry of 15 back
    reset("8")
    assert reset(None).restored == 0
    assert (position(), waiting()) == (10, [])
    mail(seen)
    drain()
    assert seen[15] == 2
    reset("8")
    assert (reset(None).restored, position(), waiting()) == (0, 20, [])  # done since
    assert audit("default") == []


def test_undo_moves_only_the_partitions_that_the_last_reset_has_moved(seen: Counter[int]) -> None:
    second = Partition.objects.create(topic=group().topic, number=1)
    Cursor.objects.create(group=group(), partition=second)
    send_many([Outgoing("orders", n, partition=1) for n in range(5)])
    drain()

    def positions() -> list[int]:
        return [cursor.next_offset for cursor in Cursor.objects.order_by("partition")]

    def undo(**options: Any) -> None:
        Reset(group(), None, "default", **options).run()

    Reset(group(), towards(Target.parse("earliest")), "default").run()
    Reset(group(), towards(Target.parse("3")), "default", number=1).run()
    assert positions() == [0, 3]
    undo()
    assert positions() == [0, 0]
    undo(number=0)
    assert positions() == [20, 0]
    Reset(group(), towards(Target.parse("2")), "default").run()
    undo()
    assert positions() == [20, 0]
    assert audit("default") == []


def test_there_is_nothing_to_undo_before_the_first_reset(seen: Counter[int]) -> None:
    with pytest.raises(NothingToUndo, match="has not been reset"):
        Reset(group(), None, "default").run()


def test_undo_cannot_go_where_the_log_was_purged(seen: Counter[int]) -> None:
    reset("5")
    reset("latest")
    Partition.objects.update(first_offset=6)
    with pytest.raises(OffsetOutOfRange, match="begins at offset 6"):
        Reset(group(), None, "default").run()


# -- who may --


def test_a_group_with_live_consumers_is_reset_by_force_only(seen: Counter[int]) -> None:
    live = Consumer.objects.create(client_id="me", group=group(), lease_until=UtcNow(LEASE))
    before = rows(Cursor, Delivery, RetryMessage)
    here = Reset(group(), towards(Target.parse("5")), "default")
    assert here.preview()[0].again == 15
    with pytest.raises(GroupActive, match="mail on orders has live consumers"):
        here.run()
    assert rows(Cursor, Delivery, RetryMessage) == before
    reset("5", force=True)
    assert position() == 5
    live.delete()
    reset("6")


def test_a_broadcast_group_is_refused(seen: Counter[int]) -> None:
    ConsumerGroup.objects.update(mode="broadcast")
    with pytest.raises(GroupMismatch, match="its position on its own disk"):
        Reset(group(), towards(Target.parse("5")), "default")


def test_a_preview_changes_nothing(seen: Counter[int]) -> None:
    sequence("default")
    before = rows(Cursor, Delivery, RetryMessage, Partition)
    (move,) = Reset(group(), towards(Target.parse("10")), "default").preview()
    assert str(move) == ("orders/0 from 20 to 10, 10 delivered again, retries that begin anew: 1")
    assert rows(Cursor, Delivery, RetryMessage, Partition) == before


def test_to_where_it_is_nothing_changes(seen: Counter[int]) -> None:
    reset("5")
    reset("latest")
    before = rows(Cursor, Delivery, RetryMessage)
    assert str(reset("latest")) == "orders/0 from 20 to 20, nothing to do"
    assert rows(Cursor, Delivery, RetryMessage) == before  # undo is still that of before


def test_a_group_that_has_never_read_can_be_reset() -> None:
    mail(Counter())
    send_many([Outgoing("orders", n) for n in range(5)])
    sequence("default")
    registered = registry.find("orders", "mail")
    assert registered
    subscribe(registered, "default", "earliest")
    assert reset("3").skipped == 3
    assert audit("default") == []


# -- ordered groups --


@pytest.fixture
def in_order() -> Counter[int]:
    """An ordered group that has read 0 … 5 of 10; 6 has failed once, and blocks it."""
    times: Counter[int] = Counter()
    mail(times, fails={6}, ordered=True)
    send_many([Outgoing("orders", n, key="k") for n in range(10)])
    drain()
    cursor = Cursor.objects.get()
    assert (cursor.next_offset, cursor.attempt, cursor.open_delivery) == (6, 2, None)
    assert cursor.blocked_until
    return times


@pytest.mark.parametrize(
    ("to", "comes"), [("2", range(2, 10)), ("6", range(6, 10)), ("8", range(8, 10))]
)
def test_an_ordered_group_begins_anew_at_the_target(
    in_order: Counter[int], to: str, comes: range
) -> None:
    Cursor.objects.update(alone=True)  # its process had died
    reset(to)
    cursor = Cursor.objects.get()
    assert (cursor.next_offset, cursor.attempt, cursor.blocked_until) == (int(to), 1, None)
    assert not cursor.alone
    assert audit("default") == []
    in_order.clear()
    mail(in_order, ordered=True)
    drain()
    assert in_order == Counter(comes)
    assert audit("default") == []


def test_what_an_ordered_group_holds_is_taken_from_it(in_order: Counter[int]) -> None:
    mail(in_order, ordered=True)
    advance(HOUR)
    drain()
    send_many([Outgoing("orders", n, key="k") for n in range(6)])
    sequence("default")
    process = Process("mail")
    held = process.claim(6)
    settle(held, 12, max_retries=5)  # 10 and 11 are done
    move = reset("14", force=True)
    # 12 and 13 are skipped with what was in hand: no two may handle this log at once.
    assert (move.position, move.skipped, [d.pk for d in move.fenced]) == (12, 2, [held.pk])
    with pytest.raises(LeaseLost):
        settle(held, 13, max_retries=5)
    assert audit("default") == []
    drain()
    assert {o: in_order[o] for o in range(12, 16)} == {12: 0, 13: 0, 14: 1, 15: 1}
    assert audit("default") == []


def test_undo_in_an_ordered_group_goes_on_where_its_consumer_was(in_order: Counter[int]) -> None:
    mail(in_order, ordered=True)
    advance(HOUR)
    held = Process("mail").claim(4)
    settle(held, 7, max_retries=5)  # 6, by itself: it had failed
    held = Process("mail").claim(4)
    settle(held, 8, max_retries=5)
    reset("0", force=True)
    move = reset(None, force=True)
    assert (move.target, move.restored) == (8, 0)
    drain()
    assert (in_order[7], in_order[8], in_order[0]) == (0, 1, 1)
    assert audit("default") == []


def test_the_end_of_a_lease_moves_no_cursor_that_was_reset(in_order: Counter[int]) -> None:
    from streams.steps.sweep import sweep

    mail(in_order, ordered=True)
    advance(HOUR)
    Process("mail").claim()
    reset("2", force=True)
    advance(LONG_AFTER)
    sweep("default")
    assert position() == 2
    drain()
    assert in_order[9] == 1
    assert audit("default") == []
