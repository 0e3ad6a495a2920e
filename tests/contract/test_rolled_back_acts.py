"""An act whose first try was rolled back is not said to be done if somebody was quicker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, transaction

from streams import signals
from streams.consume.outcome.dead_letter import give_up
from streams.database.transactions import own_transaction
from streams.deliver.claim import Claimer
from streams.errors import PreviewStale, UnknownReplay
from streams.models import DeadMessage, RetryMessage, UtcNow
from streams.operate import replay
from streams.operate.acts.act import Consent
from streams.operate.acts.held_keys import SkipKeyToDeadLetters
from streams.operate.acts.replay import CancelReplay
from streams.testing import drain
from tests.contract.stages import held_key, replayed

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

GIVE_UP = "streams.operate.acts.held_keys.give_up"
DEADLOCK = OperationalError(1213, "Deadlock found when trying to get lock")


@pytest.fixture
def dead() -> Iterator[list[int]]:
    """The offsets that the project was told of as dead."""
    told: list[int] = []

    def listen(offset: int, **values: Any) -> None:
        told.append(offset)

    signals.message_dead.connect(listen)
    yield told
    signals.message_dead.disconnect(listen)


def test_a_message_that_a_consumer_claims_meanwhile_is_not_told_of_as_skipped(
    dead: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = held_key()
    tries: list[int] = []

    def beside_a_consumer(*words: Any) -> bool:
        tries.append(1)
        if len(tries) == 1:
            raise DEADLOCK
        RetryMessage.objects.update(due_at=UtcNow())
        assert Claimer(row.group, "c", "worker-0", "default").claim_retry(timedelta(minutes=1))
        return give_up(*words)

    monkeypatch.setattr(GIVE_UP, beside_a_consumer)
    with pytest.raises(PreviewStale):
        SkipKeyToDeadLetters().carry_out(row, "default", Consent("ann"))
    assert len(tries) == 2
    assert dead == []
    assert not DeadMessage.objects.exists()


def test_a_skip_beside_that_of_somebody_else_is_told_once(
    dead: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = held_key()
    tries: list[int] = []

    def beside_another(*words: Any) -> bool:
        tries.append(1)
        if len(tries) == 1:
            with transaction.atomic():
                assert give_up(*words)
                raise DEADLOCK
        if len(tries) == 2:
            SkipKeyToDeadLetters().carry_out(row, "default", Consent("bob"))
        return give_up(*words)

    monkeypatch.setattr(GIVE_UP, beside_another)
    with pytest.raises(PreviewStale):
        SkipKeyToDeadLetters().carry_out(row, "default", Consent("ann"))
    assert dead == [2]
    assert DeadMessage.objects.count() == 1


def test_a_replay_that_comes_to_its_end_meanwhile_is_not_told_of_as_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = replayed()
    tries: list[int] = []

    @contextmanager
    def beside_a_consumer(using: str) -> Iterator[None]:
        tries.append(1)
        if len(tries) == 2:
            drain()
        with own_transaction(using):
            yield
            if len(tries) == 1:
                raise DEADLOCK

    monkeypatch.setattr(replay, "own_transaction", beside_a_consumer)
    with pytest.raises(UnknownReplay):
        CancelReplay().carry_out(row, "default", Consent("ann"))
    assert len(tries) == 2
