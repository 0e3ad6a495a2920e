"""A handler may postpone a message: it comes again later, with its attempt unspent."""

from __future__ import annotations

from datetime import timedelta

import pytest

from streams import Postpone, ReceivedMessage, consumer, send, signals
from streams.models import DeadMessage, RetryMessage
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


@pytest.mark.parametrize("wrong", [-1, timedelta(seconds=-1), 10**10])
def test_a_message_cannot_be_postponed_into_the_past_or_for_ever(wrong: object) -> None:
    with pytest.raises((ValueError, OverflowError)):
        Postpone(wrong)  # type: ignore[arg-type]
