"""Groups ordered by key: a failed message holds back those of its key, and no others."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta

import pytest

from streams import Outgoing, Reject, consumer, send_many
from streams.models import Cursor, DeadMessage, HeldKey, RetryMessage
from streams.observe.audit.walk import audit
from streams.steps.sweep import sweep
from streams.testing import advance, drain
from tests.consuming import LONG_AFTER, Process

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

MINUTE = timedelta(minutes=1)


class Recorder:
    """A handler of messages (key, number) that fails as often as it is told."""

    def __init__(self, **failures: int) -> None:
        self.failures = failures  # as in a3=2: the message 3 of key a fails twice
        self.tried: list[str] = []
        self.done: list[str] = []

    def __call__(self, message) -> None:
        self.tried.append(message.body)
        if self.failures.get(message.body, 0):
            self.failures[message.body] -= 1
            raise OSError("away")
        self.done.append(message.body)

    def of(self, key: str) -> list[str]:
        return [body for body in self.done if body[0] == key]


def registered(handler, **options):
    consumer("orders", group="mail", ordered="key", **options)(handler)
    return handler


def sent(*bodies: str) -> None:
    """Send messages with these bodies; the first character of each is its key, "-" is none."""
    keys = {"-": None}
    send_many([Outgoing("orders", body, key=keys.get(body[0], body[0])) for body in bodies])


def parked() -> list[int]:
    rows = RetryMessage.objects.filter(delivery=None, due_at=None).order_by("offset")
    return list(rows.values_list("offset", flat=True))


def holds() -> dict[str, int]:
    return dict(HeldKey.objects.values_list("key", "head_offset"))


def test_a_failed_message_holds_back_those_of_its_key_alone():
    handler = registered(Recorder(a1=2))
    sent("a0", "a1", "b2", "a3", "c4", "a5", "b6")
    drain()
    assert handler.done == ["a0", "b2", "c4", "b6"]
    assert holds() == {"a": 1}
    assert parked() == [3, 5]
    advance(MINUTE)
    drain()
    assert handler.done == ["a0", "b2", "c4", "b6"]
    assert parked() == [3, 5]
    advance(MINUTE)
    drain()
    assert handler.done == ["a0", "b2", "c4", "b6", "a1", "a3", "a5"]
    assert handler.tried.count("a1") == 3
    assert not HeldKey.objects.exists()
    assert not RetryMessage.objects.exists()
    assert audit("default") == []


def test_later_claims_park_what_comes_for_a_held_key():
    handler = registered(Recorder(a0=1))
    sent("a0")
    drain()
    sent("a1", "b2", "a3")
    drain()
    assert handler.done == ["b2"]
    assert parked() == [1, 3]
    assert audit("default") == []
    advance(MINUTE)
    drain()
    sent("a4")
    drain()
    assert handler.done == ["b2", "a0", "a1", "a3", "a4"]
    assert not Cursor.objects.get().has_held_keys
    assert audit("default") == []


def test_a_parked_message_that_fails_holds_those_behind_it():
    handler = registered(Recorder(a0=1, a1=1))
    sent("a0", "a1", "a2")
    drain()
    advance(MINUTE)
    drain()
    assert handler.done == ["a0"]
    assert holds() == {"a": 1}
    assert parked() == [2]
    advance(MINUTE)
    drain()
    assert handler.done == ["a0", "a1", "a2"]
    # Waiting for another message is no attempt of its own.
    assert handler.tried == ["a0", "a0", "a1", "a1", "a2"]


def test_a_dead_letter_lets_its_key_go_on():
    handler = registered(Recorder(a0=9), max_retries=1)
    sent("a0", "a1")
    drain()
    advance(MINUTE)
    drain()
    assert handler.done == ["a1"]
    assert DeadMessage.objects.get().offset == 0
    assert not HeldKey.objects.exists()


def test_a_rejected_message_holds_nothing():
    def handle(message):
        if message.body == "a0":
            raise Reject("odd")
        done.append(message.body)

    done: list[str] = []
    registered(handle)
    sent("a0", "a1")
    drain()
    assert done == ["a1"]
    assert not HeldKey.objects.exists()
    assert not RetryMessage.objects.exists()


def test_a_message_without_a_key_waits_for_no_other():
    handler = registered(Recorder(**{"-0": 1}))
    sent("-0", "-1", "a2")
    drain()
    assert handler.done == ["-1", "a2"]
    assert not HeldKey.objects.exists()
    advance(MINUTE)
    drain()
    assert handler.done == ["-1", "a2", "-0"]


@pytest.mark.parametrize("atomic", [False, True])
def test_in_a_batch_the_later_messages_of_a_failed_key_are_parked_though_they_succeed(atomic):
    seen = []
    failing = [OSError("away")]

    def handle(messages):
        seen.append([message.body for message in messages])
        return {m: failing.pop() for m in messages if m.body == "a0" and failing}

    registered(handle, batch=5, atomic=atomic)
    sent("a0", "b1", "a2", "b3", "a4", "a5")
    result = drain()
    assert (result.done, result.failed) == (2, 1)
    assert parked() == [2, 4, 5]
    advance(MINUTE)
    drain()
    assert seen == [["a0", "b1", "a2", "b3", "a4"], ["a0"], ["a2"], ["a4"], ["a5"]]
    assert audit("default") == []


def test_atomic_handlers_hold_keys_too():
    handler = registered(Recorder(a0=1, a3=1), atomic=True)
    sent("a0", "b1", "a2", "a3")
    drain()
    assert (handler.done, parked()) == (["b1"], [2, 3])
    for _ in range(2):
        advance(MINUTE)
        drain()
    assert handler.of("a") == ["a0", "a2", "a3"]
    assert not HeldKey.objects.exists()
    assert audit("default") == []


def test_a_dead_holder_leaves_nothing_parked_beyond_its_progress():
    registered(handler := Recorder(a0=1))
    sent("a0")
    drain()
    sent("a1", "b2", "a3")
    process = Process("mail")
    process.run_until_idle  # noqa: B018
    from streams.log.sequencer import sequence

    sequence("default")
    delivery = process.claim()
    assert delivery.parks.keys() == {1, 3}
    assert parked() == []
    advance(LONG_AFTER)
    sweep("default")
    assert Cursor.objects.get().next_offset == 1
    advance(MINUTE)
    drain()
    assert handler.of("a") == ["a0", "a1", "a3"]
    by_key = defaultdict(list)
    for body in handler.done:
        by_key[body[0]].append(body)
    assert audit("default") == []
