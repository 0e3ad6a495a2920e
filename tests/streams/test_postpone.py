"""A handler may postpone a message: it comes again later, with its attempt unspent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

import pytest

from streams import Postpone, ReceivedMessage, consumer, send, signals
from streams.models import DeadMessage, Delivery, RetryMessage, State
from streams.observe.audit.walk import audit
from streams.testing import advance, drain

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]


@pytest.mark.parametrize("ordered", [False, True])
def test_a_postponed_message_comes_again_with_its_attempt_unspent(
    ordered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []
    failed: list[object] = []
    signals.message_failed.connect(failed.append, dispatch_uid="postpone")

    @consumer("orders", group="mail", max_retries=0, ordered=ordered)
    def handle(message: ReceivedMessage) -> None:
        seen.append(message.attempt)
        if len(seen) < 4:
            raise Postpone(30, "not yet")

    send("orders", 1, key="k")
    for _wait in range(4):
        drain()
        advance(timedelta(seconds=29))
        assert drain().failed == 0  # not before its time
        advance(timedelta(seconds=1))
    signals.message_failed.disconnect(dispatch_uid="postpone")
    assert seen == [1, 1, 1, 1]
    assert not DeadMessage.objects.exists()
    assert not RetryMessage.objects.exists()
    assert not failed
    assert not [record for record in caplog.records if record.levelname != "INFO"]


@pytest.mark.parametrize("ordered", [False, True, "key"])
@pytest.mark.parametrize("batch", [None, 5])
def test_what_is_postponed_counts_as_failed_nowhere(
    batch: int | None, ordered: bool | Literal["key"]
) -> None:
    waited: set[int] = set()

    def later(message: ReceivedMessage) -> Exception | None:
        if message.body != 2 or message.offset in waited:
            return None
        waited.add(message.offset)
        return Postpone(30, "not yet")

    def handle(message: ReceivedMessage) -> None:
        if error := later(message):
            raise error

    def handle_all(messages: Sequence[ReceivedMessage]) -> dict[ReceivedMessage, Exception]:
        return {message: error for message in messages if (error := later(message))}

    if batch:
        consumer("orders", group="mail", batch=batch, ordered=ordered)(handle_all)
    else:
        consumer("orders", group="mail", ordered=ordered)(handle)
    for body in range(4):
        send("orders", body, key=str(body))
    first = drain()
    assert (first.failed, first.dead, first.errors) == (0, 0, [])
    delivery = Delivery.objects.filter(state=State.RETRY).get()
    assert (delivery.failed, delivery.failures()) == (0, {})
    assert delivery.error == "Postpone: not yet"
    advance(timedelta(seconds=30))
    second = drain()
    assert (first.done + second.done, second.failed) == (4, 0)
    assert not RetryMessage.objects.exists()
    assert audit("default") == []


@pytest.mark.parametrize("wrong", [-1, timedelta(seconds=-1), 10**10])
def test_a_message_cannot_be_postponed_into_the_past_or_for_ever(wrong: object) -> None:
    with pytest.raises((ValueError, OverflowError)):
        Postpone(wrong)  # type: ignore[arg-type]
