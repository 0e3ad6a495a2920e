"""How many messages a claim covers."""

from __future__ import annotations

import pytest

from streams.conf import MAX_BATCH
from streams.deliver.pace import PART, Pace

QUARTER = 0.25
FAR = 10**6


def pace(each: float | None, **options: float) -> Pace:
    return Pace(**{"seconds": QUARTER, "workers": 1, "each": each, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("each", "backlog", "messages"),
    [
        (None, FAR, 10),
        (0.001, FAR, 250),
        (0.000001, FAR, MAX_BATCH),
        (0.0, FAR, MAX_BATCH),
        (0.0099, FAR, 20),  # 25.25 of them
        (1.0, FAR, 10),
        (0.000001, PART * 100, 100),
        (0.000001, PART * 100 - PART, 90),
        (0.000001, 10, 10),
        (0.000001, 1, 10),
    ],
)
def test_a_claim_is_a_quarter_of_a_second_of_whole_batches_and_a_share_of_the_backlog(
    each: float | None, backlog: int, messages: int
) -> None:
    assert pace(each).messages(10, backlog) == messages


@pytest.mark.parametrize(
    ("each", "messages"), [(None, 1), (0.001, 250), (0.0099, 25), (0.2, 1), (3.0, 1)]
)
def test_where_a_call_gets_one_message_a_claim_may_be_one(
    each: float | None, messages: int
) -> None:
    """A handler that is slow, or not known yet: each idle thread shall have a message."""
    assert pace(each, single=True).messages(10, FAR) == messages


def test_the_first_claim_of_one_message_says_little() -> None:
    measured = pace(None, single=True)
    measured.learn(1, 0, 0.005)  # most of it for the claim itself
    assert measured.messages(10, FAR) == 10
    measured.learn(10, 0, 0.015)
    assert measured.each == pytest.approx(0.0015)
    assert measured.messages(10, FAR) > 100


def test_all_workers_have_their_share() -> None:
    assert pace(0.000001, workers=5).messages(10, 20 * 100) == 100


def test_the_largest_batch_fits() -> None:
    assert pace(0.000001).messages(MAX_BATCH, FAR) == MAX_BATCH
    assert pace(0.000001).messages(300, FAR) == 900


def test_zero_seconds_turn_it_off() -> None:
    assert pace(0.000001, seconds=0).messages(10, FAR) == 10


def test_it_slows_down_at_once_and_speeds_up_by_and_by() -> None:
    measured = pace(None)
    measured.learn(100, 0, 0.1)
    assert measured.each == pytest.approx(0.001)
    measured.learn(10, 0, 1.0)
    assert measured.each == pytest.approx(0.1)
    measured.learn(100, 0, 0.1)
    assert measured.each == pytest.approx(0.0703)


def test_what_has_failed_does_not_count() -> None:
    """A database that is away lets a thousand calls fail in no time."""
    measured = pace(0.001, single=True)
    measured.learn(0, 250, 0.0001)
    assert measured.messages(10, FAR) == 10
    measured.learn(0, 10, 30.0)
    assert measured.messages(10, FAR) == 1
    measured.learn(1, 9, 0.1)
    assert measured.each == pytest.approx(0.1)
