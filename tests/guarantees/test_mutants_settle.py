"""Invariants 4 and 5 at the statement: each guard of a settlement holds by itself.

A delivery that is lost has lost its token, its state and its progress at once, so a test of the
whole process cannot tell which of the guards has saved it.
"""

from __future__ import annotations

from copy import copy
from datetime import timedelta

import pytest

from streams import consumer, send
from streams.consume.outcome.settle import keep_below, release, settle
from streams.consume.registry import registrations
from streams.consume.subscription import subscribe
from streams.deliver.claim import Claimer
from streams.errors import LeaseLost
from streams.log.sequencer import sequence
from streams.models import Cursor, Delivery, State
from streams.steps.sweep import sweep
from streams.testing import advance
from tests.consuming import LONG_AFTER, given_back

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]


@pytest.fixture
def delivery(request: pytest.FixtureRequest) -> Delivery:
    """A claim of four messages; with the parameter "ordered", in an ordered group."""
    ordered = getattr(request, "param", "") == "ordered"
    consumer("orders", group="mail", batch=4, ordered=ordered)(lambda messages: None)
    (registration,) = registrations()
    for number in range(4):
        send("orders", number)
    sequence("default")
    claimer = Claimer(subscribe(registration, "default", "earliest"), "client", "thread", "default")
    claimed = claimer.claim(4, timedelta(seconds=60))
    assert claimed is not None
    return claimed


def test_the_sweep_takes_the_token_along(delivery: Delivery) -> None:
    """Whoever still has it cannot take the sweep's end of the delivery for its own."""
    advance(LONG_AFTER)
    assert sweep("default") == 1
    stored = Delivery.objects.get(pk=delivery.pk)
    assert stored.state == State.RETRY
    assert stored.token not in (None, delivery.token)
    with pytest.raises(LeaseLost):
        settle(delivery, 4, max_retries=16)


def test_what_has_been_given_back_cannot_be_settled(delivery: Delivery) -> None:
    release(delivery)
    with pytest.raises(LeaseLost):
        settle(delivery, 4, max_retries=16)
    stored = Delivery.objects.get(pk=delivery.pk)
    assert (stored.state, stored.token, stored.progress) == (State.START, "", 0)


@pytest.mark.parametrize("delivery", ["ordered"], indirect=True)
def test_what_an_ordered_group_has_given_back_cannot_be_settled(delivery: Delivery) -> None:
    release(delivery)
    with pytest.raises(LeaseLost):
        settle(delivery, 4, max_retries=16)
    stored = Delivery.objects.get(pk=delivery.pk)
    assert (stored.state, stored.token, stored.progress) == (State.RELEASED, delivery.token, 0)


@pytest.mark.parametrize("delivery", ["", "ordered"], indirect=True)
def test_what_was_settled_at_the_same_moment_is_not_given_back(delivery: Delivery) -> None:
    """Two requests of one client have both read the delivery before it was settled in part."""
    other = copy(delivery)
    settle(delivery, 2, max_retries=16)
    with pytest.raises(LeaseLost):
        release(other)
    stored = Delivery.objects.get()
    assert (stored.state, stored.token, stored.progress) == (State.START, delivery.token, 2)


@pytest.mark.parametrize("delivery", ["", "ordered"], indirect=True)
def test_what_two_give_back_at_the_same_moment_is_given_back_once(delivery: Delivery) -> None:
    """A request and its repetition have both read the delivery, and keep the same part of it."""
    other = copy(delivery)
    keep_below(delivery, 2)
    keep_below(other, 2)
    if delivery.group.ordered:
        assert Cursor.objects.get().next_offset == 2
    else:
        assert given_back() == [(2, 3)]
    assert Delivery.objects.held().get().offsets == other.offsets == range(2)
