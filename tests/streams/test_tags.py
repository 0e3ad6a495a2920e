"""Tags: a group that names some is given only these, and the others are counted."""

from __future__ import annotations

import pytest

from streams import Outgoing, consumer, send_many
from streams.models import Delivery, State
from streams.observe.audit.walk import audit
from streams.testing import drain

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

TAGS = ["paid", "", "open", "paid", "Paid", "late"]


@pytest.fixture(autouse=True)
def messages() -> None:
    send_many([Outgoing("orders", n, tag=tag) for n, tag in enumerate(TAGS)])


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("atomic", [False, True])
def test_only_messages_with_a_wanted_tag_are_handed_over(ordered, atomic):
    seen: list[tuple[int, str]] = []
    options = {"ordered": ordered, "atomic": atomic}
    consumer("orders", group="mail", tags=("paid", "late"), **options)(
        lambda message: seen.append((message.body, message.tag))
    )
    result = drain()
    assert seen == [(0, "paid"), (3, "paid"), (5, "late")]
    assert (result.done, result.passed) == (3, 3)
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.passed, delivery.progress) == (State.DONE, 3, 6)
    assert audit("default") == []


def test_a_batch_holds_only_wanted_messages():
    batches = []
    consumer("orders", group="mail", tags=["open"], batch=10)(
        lambda messages: batches.append([message.body for message in messages])
    )
    assert drain().passed == 5
    assert batches == [[2]]


def test_where_no_message_is_wanted_the_group_goes_on():
    calls: list[object] = []
    consumer("orders", group="mail", tags=["refunded"], batch=3)(calls.append)
    result = drain()
    assert calls == []
    assert (result.done, result.passed, result.failed) == (0, 6, 0)
    assert set(Delivery.objects.values_list("state", "passed")) == {(State.DONE, 3)}


def test_a_failure_between_is_retried_and_nothing_else():
    @consumer("orders", group="mail", tags=["paid"])
    def handle(message):
        if message.body == 3:
            raise ValueError(message.body)

    result = drain()
    assert (result.done, result.passed, result.failed) == (1, 4, 1)
