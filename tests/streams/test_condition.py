"""How a group stands is one word and one order, and every page, command and answer says it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from streams.log.calls import Call, calls
from streams.log.condition import Condition, Known, Trouble, standing
from streams.log.lag import Lag
from streams.log.standings import standings
from streams.models import Consumer, ConsumerGroup, Cursor, Delivery, Partition, Topic, UtcNow

NOW = datetime(2026, 11, 23, 9, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def lag(**values: Any) -> Lag:
    """A group with a consumer that has nothing to do."""
    group = {name: values.pop(name) for name in ("paused", "paused_at") if name in values}
    known = {"behind": 0, "open": 0, "waiting": 0, "dead": 0, "consumers": 1, "age": None}
    return Lag(group=ConsumerGroup(name="mail", **group), **{**known, **values})


def call(running: timedelta, usual: timedelta | None, left: timedelta = HOUR) -> Call:
    return Call(1, 1, "c", "t", 1, 0, 9, 0, "new", 1, running, usual, NOW, left)


OLD = {"behind": 9, "age": HOUR}


@pytest.mark.parametrize(
    ("values", "known", "condition", "trouble"),
    [
        ({}, {}, "running", []),
        ({"consumers": 0}, {}, "idle", []),
        ({"consumers": 0, "waiting": 1}, {}, "no consumer", ["no consumer"]),
        ({"blocked": 1, **OLD}, {}, "blocked", ["blocked"]),
        (OLD, {}, "running", []),  # nobody knows its rates
        ({**OLD, "age": MINUTE}, {"published": 9, "consumed": 0}, "running", []),
        (OLD, {"published": 100, "consumed": 1}, "stuck", ["stuck"]),
        (OLD, {"published": 0, "consumed": 0, "beyond_at": NOW}, "stuck", ["stuck"]),
        (OLD, {"published": 9, "consumed": 5}, "falling behind", ["behind"]),
        (OLD, {"published": 5, "consumed": 9}, "catching up", []),
        (OLD, {"published": 5, "consumed": 9, "beyond_at": NOW}, "catching up", ["behind"]),
        ({"dead": 1}, {}, "running", ["dead letters"]),
        ({"dead": 1}, {"alarm": "expired"}, "running", ["alarm", "dead letters"]),
        ({}, {"call": call(HOUR, MINUTE)}, "running", ["slow call"]),
        ({"paused": True, "paused_at": NOW - HOUR, "blocked": 1}, {}, "paused", []),
        ({"paused": True, "paused_at": NOW - 2 * DAY}, {}, "paused", ["paused"]),
    ],
)
def test_a_group_is_what_its_lag_and_its_rates_say(values, known, condition, trouble) -> None:
    found = standing(lag(**values), NOW, Known(**known))
    assert (found.condition, found.trouble) == (condition, trouble)


def test_the_worst_group_comes_first_and_of_the_same_trouble_the_oldest() -> None:
    found = [
        standing(lag(blocked=1, age=MINUTE), NOW),
        standing(lag(consumers=0, **OLD), NOW),
        standing(lag(consumers=0, behind=2_000_000, age=MINUTE), NOW),
        standing(lag(), NOW, Known(alarm="expired", alarm_at=NOW - MINUTE)),
        standing(lag(dead=1, dead_age=DAY), NOW),
        standing(lag(dead=5800, dead_age=HOUR), NOW),
        standing(lag(**OLD), NOW, Known(published=5, consumed=9, beyond_at=NOW)),
        standing(lag(paused=True, paused_at=NOW - 2 * DAY), NOW),
        standing(lag(**OLD), NOW, Known(published=5, consumed=9)),
        standing(lag(), NOW),
    ]
    assert sorted([*found[5:], *found[:5]], key=lambda one: one.order) == found


def test_a_trouble_says_since_when_and_what_there_is_to_say() -> None:
    known = Known(
        published=5,
        consumed=9,
        alarm="lag_age",
        alarm_at=NOW - HOUR,
        beyond_at=NOW - 2 * HOUR,
        call=call(23 * MINUTE, timedelta(seconds=0.25)),
    )
    found = standing(lag(behind=2_000_000, age=DAY, dead=1, dead_age=3 * HOUR), NOW, known)
    assert {need.trouble: found.told(need) for need in found.needs} == {
        Trouble.SLOW_CALL: "for 23 min 0 s, usually 0.25 s",
        Trouble.ALARM: "for 1 h 0 min, lag_age",
        Trouble.DEAD: "for 3 h 0 min",
        Trouble.BEHIND: "for 2 h 0 min, clears in 5 d 18 h",
    }


@pytest.mark.parametrize(
    ("running", "usual", "left", "slow"),
    [
        (HOUR, 6 * MINUTE, HOUR, True),
        (59 * MINUTE, 6 * MINUTE, MINUTE, False),  # as long as is usual, near its deadline
        (timedelta(seconds=29), timedelta(milliseconds=1), HOUR, False),  # nobody need look yet
        (timedelta(seconds=30), timedelta(milliseconds=1), HOUR, True),
        (20 * MINUTE, None, 30 * MINUTE, False),  # nothing is known: half of its time
        (20 * MINUTE, None, 10 * MINUTE, True),
    ],
)
def test_a_call_is_slow_at_ten_times_the_usual_time(running, usual, left, slow) -> None:
    assert call(running, usual, left).is_slow is slow


@pytest.fixture
def group() -> ConsumerGroup:
    topic = Topic.objects.create(name="orders")
    made = ConsumerGroup.objects.create(topic=topic, name="mail")
    Cursor.objects.create(group=made, partition=topic.partitions.get(), next_offset=100)
    Partition.objects.update(next_offset=100)
    Consumer.objects.create(client_id="c", group=made, lease_until=UtcNow(HOUR))
    return made


def delivery(group: ConsumerGroup, first: int, size: int = 10, **values: Any) -> Delivery:
    return Delivery.objects.create(
        group=group,
        partition=Partition.objects.get(),
        first_offset=first,
        last_offset=first + size - 1,
        progress=first,
        **{"client_id": "c", "thread": "t", "token": "t", "deadline": UtcNow(HOUR), **values},
    )


def ended(group: ConsumerGroup, first: int, seconds: float, **values: Any) -> None:
    took = UtcNow(-HOUR + timedelta(seconds=seconds))
    known = {"state": "DONE", "claimed_at": UtcNow(-HOUR), "finished_at": took}
    delivery(group, first, **{**known, **values})


@pytest.mark.django_db
def test_what_is_usual_is_the_median_of_the_deliveries_before_for_as_many_messages(group) -> None:
    for first, seconds in ((0, 1), (10, 2), (20, 400)):
        ended(group, first, seconds)
    ended(group, 30, 0.001, state="RETRY")  # a failure says nothing
    ended(group, 95, 0.001)  # nor does what came later
    held = delivery(group, 40, size=5, claimed_at=UtcNow(-MINUTE))
    held.refresh_from_db()
    (found,) = calls([held], held.claimed_at + MINUTE, "default")
    assert found.usual == pytest.approx(timedelta(seconds=1), abs=timedelta(milliseconds=5))
    assert (found.running, found.is_slow) == (MINUTE, True)


@pytest.mark.django_db
def test_a_first_attempt_that_hangs_is_slow_though_it_has_no_start_yet(group) -> None:
    ended(group, 0, 1)
    delivery(group, 10, claimed_at=UtcNow(-23 * MINUTE))
    (found,) = standings(ConsumerGroup.objects.all(), "default")
    assert (found.condition, found.trouble) == ("running", ["slow call"])
    assert found.known.call
    assert found.known.call.running == pytest.approx(23 * MINUTE, abs=MINUTE)


@pytest.mark.django_db
def test_what_is_usual_is_not_asked_for_while_no_call_takes_long(group) -> None:
    delivery(group, 10)

    def statements() -> int:
        with CaptureQueriesContext(connection) as captured:
            standings(ConsumerGroup.objects.select_related("topic"), "default")
        return len(captured)

    few = statements()
    Delivery.objects.update(claimed_at=UtcNow(-HOUR))
    assert statements() == few + 2
    for first in range(20, 40):
        delivery(group, first, size=1, claimed_at=UtcNow(-HOUR))
    assert statements() == few + 2


@pytest.mark.django_db
def test_a_pause_has_its_time_which_a_second_one_keeps(group) -> None:
    groups = ConsumerGroup.objects.all()
    assert groups.pause() == 1
    first = ConsumerGroup.objects.get().paused_at
    assert first
    assert groups.pause() == 0
    assert ConsumerGroup.objects.get().paused_at == first
    groups.resume()
    assert ConsumerGroup.objects.get().paused_at is None


def test_every_condition_and_every_trouble_has_a_word_of_its_own() -> None:
    for words in (Condition, Trouble):
        assert len(set(words.values)) == len({str(one.label) for one in words}) == len(words)
