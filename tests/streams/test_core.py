"""First light: what is sent in a transaction is consumed by a group."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from datetime import UTC, timedelta

import pytest
from django.db import transaction

from streams import ReceivedMessage, Reject, consumer, send
from streams.consume import registry
from streams.database.clock import instant
from streams.log import bodies as log_bodies
from streams.models import DeadMessage, Delivery, Message, RetryMessage, State
from streams.testing import advance, drain, sent

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def clean_registry(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})


def test_a_sent_message_is_handled_once():
    seen: list[ReceivedMessage] = []
    consumer("orders", group="mail")(seen.append)
    result = send("orders", {"n": 1}, key="k", tag="t", headers={"a": "b"})
    assert Message.objects.get().pk == result.message_id
    assert sent("orders", key="k")[0].body == {"n": 1}
    assert drain().done == 1
    (message,) = seen
    assert isinstance(message, ReceivedMessage)
    assert (message.body, message.key, message.tag, message.headers) == (
        {"n": 1},
        "k",
        "t",
        {"a": "b"},
    )
    assert (message.offset, message.attempt) == (0, 1)
    assert drain().done == 0
    assert Delivery.objects.get().state == State.DONE


def test_a_message_makes_only_the_fields_that_a_handler_looks_at(monkeypatch):
    """A handler pays for no date and no header at which it does not look."""
    made = []

    def noted(value):
        made.append(value)
        return instant(value)

    monkeypatch.setattr(log_bodies, "instant", noted)
    looks = iter([lambda message: message.body, lambda message: message.created_at.tzinfo])
    seen = []
    consumer("orders", group="mail")(lambda message: seen.append(next(looks)(message)))
    send("orders", 1)
    assert (drain().done, seen, made) == (1, [1], [])
    send("orders", 2)
    assert drain().done == 1
    assert seen[1] is UTC
    assert len(made) == 1


def test_a_received_message_equals_one_with_the_same_values_and_can_be_copied_and_pickled():
    seen: list[ReceivedMessage] = []
    consumer("orders", group="mail")(seen.append)
    send("orders", {"n": 1}, key="k", tag="t", headers={"a": "b"})
    drain()
    (message,) = seen
    fields = [field.name for field in dataclasses.fields(ReceivedMessage)]
    row = Message.objects.get()
    pickled = pickle.loads(pickle.dumps(message))  # noqa: S301 - made here
    for same in (pickled, copy.copy(message), copy.deepcopy(message)):
        assert type(same) is ReceivedMessage
        assert same == message
        assert hash(same) == hash(message)
        assert repr(same) == repr(message)
        assert same.body == {"n": 1}
    built = ReceivedMessage(**{name: getattr(message, name) for name in fields})
    assert built == message == dataclasses.replace(message)
    assert (message.created_at, message.sequenced_at) == (row.created_at, row.sequenced_at)
    assert message.created_at.utcoffset() == timedelta(0)
    assert (message.raw_body, message.body_type, message.size) == (b'{"n":1}', "json", 7)
    with pytest.raises(AttributeError):
        getattr(message, "stored_headers")  # noqa: B009 - it is not a field


def test_a_failing_message_climbs_the_ladder_and_dies():
    attempts = []

    @consumer("orders", group="mail", max_retries=2)
    def fail(message):
        attempts.append(message.attempt)
        raise ZeroDivisionError("no")

    send("orders", b"\x00\xff")
    assert drain().failed == 1
    assert RetryMessage.objects.get().attempt == 2
    assert drain().failed == 0
    advance(timedelta(seconds=13))
    assert drain().failed == 1
    advance(timedelta(seconds=37))
    result = drain()
    assert (result.failed, result.dead) == (1, 1)
    assert attempts == [1, 2, 3]
    letter = DeadMessage.objects.get()
    assert bytes(letter.body) == b"\x00\xff"
    assert letter.attempts == 3
    assert letter.error_class == "ZeroDivisionError"
    assert "raise ZeroDivisionError" in letter.traceback
    assert not RetryMessage.objects.exists()


def test_batches_may_fail_in_part():
    @consumer("orders", group="mail", batch=10)
    def handle(messages):
        return {m: Reject("odd") for m in messages if m.body % 2}

    for n in range(5):
        send("orders", n)
    result = drain()
    assert (result.done, result.failed, result.dead) == (3, 2, 2)


@pytest.mark.django_db(transaction=True)
def test_a_rolled_back_send_is_never_seen():
    seen: list[ReceivedMessage] = []
    consumer("orders", group="mail")(seen.append)
    with pytest.raises(KeyError), transaction.atomic():
        send("orders", 1)
        raise KeyError
    send("orders", 2)
    drain()
    assert [m.body for m in seen] == [2]
    assert [m.offset for m in seen] == [0]
