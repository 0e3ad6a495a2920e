"""Groups ordered by key: a failed message holds back those of its key, and no others."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from streams import Outgoing, Reject, consumer, runtime_settings, send_many
from streams.consume import registry
from streams.consume.limits import limits
from streams.consume.outcome.dead_letter import redrive
from streams.consume.outcome.expire import expire
from streams.consume.outcome.settle import keep_below
from streams.database.transactions import own_transaction
from streams.deliver.handling import Handling
from streams.errors import GroupActive, GroupMismatch, InvalidConsumer, TooManyParked
from streams.log import held_keys
from streams.log.held_keys import GroupPartition, repair
from streams.log.sequencer import sequence
from streams.models import (
    IMMEDIATE,
    Again,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    HeldKey,
    Message,
    RetryMessage,
    SystemConfig,
    Topic,
    UtcNow,
)
from streams.observe.audit.walk import audit
from streams.observe.backlogs import blocked
from streams.operate.acts.act import Consent
from streams.operate.acts.order import OrderByKey
from streams.operate.acts.replay import ReplayToGroup
from streams.operate.acts.reset import ResetGroup, UndoReset
from streams.operate.acts.unblock import SkipToDeadLetters
from streams.operate.group_deletion import delete_group
from streams.retain.purge import Purge
from streams.steps.sweep import sweep
from streams.testing import advance, drain
from tests.consuming import LONG_AFTER, Process
from tests.consuming import registered as registered_as

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


def registered(handler: Any, **options: Any) -> Any:
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


def test_an_absent_message_stops_its_partition_since_its_key_is_unknown():
    handler = registered(Recorder(a0=1))
    sent("a0", "b1", "a2", "b3")
    sequence("default")
    Message.objects.filter(offset=2).update(
        offset=None, due_at=UtcNow(10 * MINUTE)
    )  # not there yet
    drain()
    assert handler.done == ["b1"]
    cursor = Cursor.objects.get()
    assert (cursor.next_offset, cursor.is_blocked) == (2, True)
    Message.objects.filter(offset=None).update(offset=2, due_at=IMMEDIATE)
    advance(MINUTE)
    drain()
    assert (handler.of("a"), handler.of("b")) == (["a0", "a2"], ["b1", "b3"])
    assert audit("default") == []


def test_a_message_whose_key_was_not_seen_at_the_claim_is_not_handed_over():
    """It was absent then, and has come since: its key may be held."""
    handler = registered(Recorder(a0=1))
    sent("a0")
    drain()
    sent("b1", "a2", "b3")
    sequence("default")
    Message.objects.filter(offset=2).update(offset=None, due_at=UtcNow(10 * MINUTE))
    process = Process("mail")
    delivery = process.claim()
    assert (dict(delivery.parks), set(delivery.unseen)) == ({}, {2})
    Message.objects.filter(offset=None).update(offset=2, due_at=IMMEDIATE)
    advance(LONG_AFTER)
    registration = registered_as("orders", "mail")
    in_force = limits(delivery.group, registration, "default")
    Handling(Delivery.objects.get(pk=delivery.pk), registration, in_force).run()
    assert handler.done == ["b1"]
    for _ in range(2):
        advance(MINUTE)
        drain()
    assert handler.of("a") == ["a0", "a2"]
    assert handler.of("b") == ["b1", "b3"]


def test_beyond_the_most_that_may_be_parked_the_partition_waits_and_says_so():
    SystemConfig.objects.create(name="parkedMessagesMax", value=3)
    runtime_settings.forget()
    handler = registered(Recorder(a0=2))
    sent("a0", "a1", "b2", "a3", "b4", "a5", "b6")
    drain()
    drain()
    assert parked() == [1, 3]
    assert handler.done == ["b2", "b4"]
    cursor = Cursor.objects.get()
    assert (cursor.next_offset, cursor.is_blocked) == (5, True)
    assert "parkedMessagesMax" in cursor.last_error
    (found,) = blocked("default")
    assert "orders/0@5 waits, since parkedMessagesMax" in found.text
    # It was never tried, so it is no dead letter.
    group = ConsumerGroup.objects.get()
    with pytest.raises(TooManyParked):
        SkipToDeadLetters().preview(group, "default")
    with pytest.raises(TooManyParked):
        SkipToDeadLetters().run(group, "default", Consent("me", [[0, 5, 1]]))
    assert not DeadMessage.objects.exists()
    for _ in range(4):
        advance(MINUTE)
        drain()
    assert handler.of("a") == ["a0", "a1", "a3", "a5"]
    assert handler.of("b") == ["b2", "b4", "b6"]
    assert not Cursor.objects.get().is_blocked
    assert audit("default") == []


def test_a_new_failure_beyond_it_blocks_its_partition_as_in_an_ordered_group():
    SystemConfig.objects.create(name="parkedMessagesMax", value=2)
    runtime_settings.forget()
    handler = registered(Recorder(a0=1, c2=1))
    sent("a0", "a1", "c2", "b3")
    drain()
    cursor = Cursor.objects.get()
    assert (cursor.next_offset, cursor.attempt, cursor.is_blocked) == (2, 2, True)
    assert handler.done == []
    advance(MINUTE)
    drain()
    assert sorted(handler.done) == ["a0", "a1", "b3", "c2"]
    assert audit("default") == []


class TestAReset:
    """The keys of what it takes back are free; those that are held before it stay so."""

    def test_frees_the_keys_of_what_is_handled_again(self):
        handler = registered(Recorder(a1=9))
        sent("b0", "a1", "a2", "b3")
        drain()
        assert holds() == {"a": 1}
        handler.failures.clear()
        reset("0")
        assert (holds(), parked()) == ({}, [])
        drain()
        assert handler.done == ["b0", "b3", "b0", "a1", "a2", "b3"]
        assert audit("default") == []

    def test_keeps_a_key_that_waits_for_an_earlier_message(self):
        handler = registered(Recorder(a0=1))
        sent("a0", "a1", "b2", "a3")
        drain()
        reset("2")
        assert (holds(), parked()) == ({"a": 0}, [1])
        drain()
        assert (handler.done, parked()) == (["b2", "b2"], [1, 3])
        advance(MINUTE)
        drain()
        assert handler.of("a") == ["a0", "a1", "a3"]
        assert audit("default") == []

    def test_when_it_is_undone_lets_each_key_wait_in_its_order(self):
        handler = registered(Recorder(a1=1))
        sent("b0", "a1", "a2", "b3", "a4")
        drain()
        reset("0")
        UndoReset().run(ConsumerGroup.objects.get(), "default", Consent("me"))
        assert (holds(), parked()) == ({"a": 1}, [2, 4])
        advance(MINUTE)
        drain()
        assert handler.of("a") == ["a1", "a2", "a4"]
        assert audit("default") == []


def reset(to: str) -> None:
    ResetGroup(to=to).run(ConsumerGroup.objects.get(), "default", Consent("me"))


def replay(start: str, end: str) -> None:
    part = ReplayToGroup.of({"from": start, "to": end})
    part.run(ConsumerGroup.objects.get(), "default", Consent("me"))


def test_a_purge_keeps_what_is_parked():
    handler = registered(Recorder(a0=1))
    sent("a0", "a1", "b2", "a3", "b4")
    drain()
    Topic.objects.update(retention_count=0)
    Purge("default").run()
    assert Message.objects.count() == 5
    advance(MINUTE)
    drain()
    assert handler.of("a") == ["a0", "a1", "a3"]
    Purge("default").run()
    assert not Message.objects.exists()
    assert audit("default") == []


def test_a_forced_purge_gives_up_what_is_parked_below_it_and_the_key_goes_on():
    handler = registered(Recorder(a0=9))
    sent("a0", "a1", "b2", "a3", "a4")
    drain()
    Topic.objects.update(retention_count=2)
    Purge("default", force=True).run()
    assert (holds(), parked()) == ({"a": 3}, [4])
    drain()
    assert handler.of("a") == ["a3", "a4"]
    assert not HeldKey.objects.exists()
    assert audit("default") == []


def test_a_redriven_letter_waits_for_no_other_message_of_its_key():
    handler = registered(Recorder(a0=2, a1=9), max_retries=1)
    sent("a0", "a1", "a2")
    drain()
    advance(MINUTE)
    drain()
    assert DeadMessage.objects.get().offset == 0
    assert holds() == {"a": 1}
    assert redrive(DeadMessage.objects.get())
    drain()
    assert handler.done == ["a0"]
    assert (holds(), parked()) == ({"a": 1}, [2])
    assert audit("default") == []


def test_a_replay_parks_behind_the_keys_that_are_held():
    handler = registered(Recorder(a1=1))
    sent("a0", "a1", "a2", "b3")
    drain()
    replay("0", "4")
    drain()
    assert handler.done == ["a0", "b3", "b3"]
    sweep("default")
    for _ in range(3):
        advance(MINUTE)
        drain()
    assert [body for body in handler.of("a") if body != "a0"] == ["a1", "a2"]
    assert not HeldKey.objects.exists()
    assert not RetryMessage.objects.exists()
    assert audit("default") == []


def test_a_deleted_group_leaves_no_held_key():
    registered(Recorder(a0=9))
    sent("a0", "a1")
    drain()
    delete_group(ConsumerGroup.objects.get())
    assert not HeldKey.objects.exists()
    assert not RetryMessage.objects.exists()


def test_tags_that_the_group_does_not_want_are_not_parked():
    handler = registered(Recorder(a0=1), tags=["x"])
    send_many(
        [
            Outgoing("orders", "a0", key="a", tag="x"),
            Outgoing("orders", "a1", key="a", tag="y"),
            Outgoing("orders", "a2", key="a", tag="x"),
        ]
    )
    drain()
    send_many([Outgoing("orders", "a3", key="a", tag="y")])
    drain()
    assert parked() == [2]
    advance(MINUTE)
    drain()
    assert handler.done == ["a0", "a2"]


def test_with_no_key_held_it_sends_the_statements_of_an_ordered_group():
    counts = {}
    for order in (True, "key"):
        name = f"orders-{order}".lower()
        consumer(name, group="mail", ordered=order, start="earliest")(Recorder())
        send_many([Outgoing(name, n, key=f"k{n % 3}") for n in range(20)])
        drain("mail")
        send_many([Outgoing(name, n, key=f"k{n % 3}") for n in range(20)])
        with CaptureQueriesContext(connection) as seen:
            drain("mail")
        counts[order] = [re.sub(r"\d+", "n", one["sql"])[:60] for one in seen]
        registry._registered.clear()
    assert len(counts["key"]) == len(counts[True]) > 10
    assert counts["key"] == counts[True]


class TestADeadLetterThatHolds:
    """With on_dead="hold" a dead letter keeps its place."""

    def dead(self, **options: Any) -> Any:
        handler = registered(Recorder(a0=2), max_retries=1, on_dead="hold", **options)
        sent("a0", "a1", "b2")
        drain()
        advance(MINUTE)
        drain()
        assert DeadMessage.objects.get().offset == 0
        sent("a3", "b4")
        drain()
        assert handler.done == ["b2", "b4"]
        assert parked() == [1, 3]
        sweep("default")
        assert (holds(), parked()) == ({"a": 0}, [1, 3])
        return handler

    def test_is_handled_in_its_order_once_it_is_redriven(self):
        handler = self.dead()
        assert redrive(DeadMessage.objects.get())
        drain()
        assert handler.of("a") == ["a0", "a1", "a3"]
        assert not HeldKey.objects.exists()
        assert audit("default") == []

    def test_holds_again_if_it_dies_again(self):
        handler = self.dead()
        handler.failures["a0"] = 2
        redrive(DeadMessage.objects.get())
        drain()
        advance(MINUTE)
        drain()
        assert parked() == [1, 3]
        (letter,) = DeadMessage.objects.waiting()
        redrive(letter)
        drain()
        assert handler.of("a") == ["a0", "a1", "a3"]
        assert audit("default") == []

    def test_is_handled_in_its_order_by_a_replay_and_stays_a_letter(self):
        handler = self.dead()
        replay("0", "2")
        drain()
        assert handler.of("a") == ["a0", "a1", "a3"]
        assert not HeldKey.objects.exists()
        assert not RetryMessage.objects.exists()
        assert DeadMessage.objects.waiting().count() == 1
        assert audit("default") == []

    def test_holds_its_key_while_a_replay_of_it_fails_and_when_it_dies_again(self):
        handler = self.dead()
        handler.failures["a0"] = 2
        replay("0", "1")
        drain()
        sweep("default")
        assert (handler.of("a"), holds(), parked()) == ([], {"a": 0}, [1, 3])
        assert not HeldKey.objects.get().dead
        advance(MINUTE)
        drain()
        sweep("default")
        assert (handler.of("a"), holds(), parked()) == ([], {"a": 0}, [1, 3])
        first, second = DeadMessage.objects.waiting().order_by("pk")
        assert first.discard()
        sweep("default")
        assert holds() == {"a": 0}
        assert redrive(second)
        drain()
        assert handler.of("a") == ["a0", "a1", "a3"]
        assert audit("default") == []

    def test_that_is_redriven_while_its_replay_waits_is_handled_once(self):
        handler = self.dead()
        handler.failures["a0"] = 1
        replay("0", "1")
        drain()
        assert redrive(DeadMessage.objects.get())
        drain()
        assert handler.of("a") == ["a0", "a1", "a3"]
        assert not HeldKey.objects.exists()
        assert audit("default") == []

    def test_a_repair_of_its_key_changes_nothing(self):
        self.dead()
        key = HeldKey.objects.get()
        place = GroupPartition(key.group_id, key.partition_id)
        with own_transaction("default"):
            assert repair(place, [key.key_hash], "default") == 0
        assert (holds(), parked()) == ({"a": 0}, [1, 3])

    def test_lets_its_key_go_once_it_is_discarded(self):
        handler = self.dead()
        assert DeadMessage.objects.get().discard()
        sweep("default")
        drain()
        assert handler.of("a") == ["a1", "a3"]
        assert not HeldKey.objects.exists()
        assert audit("default") == []

    def test_lets_its_key_go_at_a_reset_to_before_it(self):
        handler = self.dead()
        reset("0")
        assert (holds(), parked()) == ({}, [])
        drain()
        assert handler.done == ["b2", "b4", "a0", "a1", "b2", "a3", "b4"]
        assert audit("default") == []

    @pytest.mark.parametrize("to", ["0", "1"])
    def test_holds_its_key_again_when_the_reset_is_undone(self, to):
        handler = self.dead()
        reset(to)
        assert holds() == ({} if to == "0" else {"a": 0})
        UndoReset().run(ConsumerGroup.objects.get(), "default", Consent("me"))
        assert (holds(), parked()) == ({"a": 0}, [1, 3])
        redrive(DeadMessage.objects.get())
        drain()
        assert handler.of("a") == ["a0", "a1", "a3"]
        assert audit("default") == []

    def test_has_let_go_what_the_group_has_seen_again_before_the_undo(self):
        handler = self.dead()
        reset("0")
        drain()
        UndoReset().run(ConsumerGroup.objects.get(), "default", Consent("me"))
        assert (holds(), parked()) == ({}, [])
        assert handler.of("a") == ["a0", "a1", "a3"]

    def test_that_was_edited_holds_its_key_through_a_reset(self):
        handler = self.dead()
        DeadMessage.objects.update(edited_at=UtcNow())
        reset("0")
        drain()
        assert (holds(), parked()) == ({"a": 0}, [1, 3])
        redrive(DeadMessage.objects.get())
        drain()
        assert handler.of("a") == ["a0", "a1", "a3"]

    @pytest.mark.mysql
    def test_that_is_redriven_while_a_reset_frees_its_key_waits_for_no_other(
        self, monkeypatch, in_thread
    ):
        self.dead()
        lock = held_keys.lock

        def late(place, hashes, using):
            monkeypatch.setattr(held_keys, "lock", lock)
            in_thread(lambda: reset("0")).result(60)
            return lock(place, hashes, using)

        monkeypatch.setattr(held_keys, "lock", late)
        assert redrive(DeadMessage.objects.get())
        assert RetryMessage.objects.get().key_hash is None
        assert not HeldKey.objects.exists()

    def test_holds_also_if_it_is_rejected_at_once(self):
        def handle(message):
            if message.body == "a0":
                raise Reject("odd")
            done.append(message.body)

        done: list[str] = []
        registered(handle, on_dead="hold")
        sent("a0", "a1", "b2")
        drain()
        assert (done, holds(), parked()) == (["b2"], {"a": 0}, [1])
        assert audit("default") == []

    def test_is_refused_where_no_key_is_held(self):
        with pytest.raises(InvalidConsumer, match="on_dead"):
            consumer("orders", group="mail", ordered=True, on_dead="hold")(print)


class TestTheChangeOfAnOrderedGroup:
    """An ordered group becomes one that is ordered by key, by an act, when nothing is open."""

    def blocked(self) -> Any:
        handler = Recorder(a0=1)
        consumer("orders", group="mail", ordered=True)(handler)
        sent("a0", "b1", "a2", "b3")
        drain()
        assert handler.done == []
        registry._registered.clear()
        return registered(handler)

    def test_keeps_what_has_failed_in_its_place(self):
        handler = self.blocked()
        with pytest.raises(GroupMismatch, match="ordered is key"):
            drain()
        OrderByKey().run(ConsumerGroup.objects.get(), "default", Consent("me"))
        handler.failures["a0"] = 1
        advance(MINUTE)
        drain()
        assert (handler.done, holds(), parked()) == (["b1", "b3"], {"a": 0}, [2])
        advance(MINUTE)
        drain()
        assert handler.of("a") == ["a0", "a2"]
        assert audit("default") == []

    def test_is_refused_while_something_is_open(self):
        self.blocked()
        registry._registered.clear()
        consumer("orders", group="mail", ordered=True)(print)
        advance(MINUTE)
        process = Process("mail")
        process.claim()
        with pytest.raises(GroupActive, match="live consumers"):
            OrderByKey().run(ConsumerGroup.objects.get(), "default", Consent("me"))
        process.client.deregister()
        with pytest.raises(GroupActive, match="open deliveries"):
            OrderByKey().run(ConsumerGroup.objects.get(), "default", Consent("me"))
        assert ConsumerGroup.objects.get().strict


def test_a_retry_that_is_asked_for_again_stays_parked():
    handler = registered(Recorder(a0=1))
    sent("a0", "a1")
    drain()
    group = ConsumerGroup.objects.get()
    RetryMessage.objects.schedule(group.pk, Cursor.objects.get().partition_id, [Again(1, 1)])
    assert parked() == [1]
    drain()
    assert handler.done == []


def test_a_claim_without_a_held_key_does_not_forget_the_others():
    handler = registered(Recorder(a0=1))
    sent("a0")
    drain()
    sent("b1")
    drain()
    sent("a2")
    drain()
    assert (handler.done, parked()) == (["b1"], [2])


@pytest.mark.parametrize("known", [False, True], ids=["alone", "known"])
def test_a_message_that_ends_its_process_holds_its_key_alone(known):
    """Its host knows which call ran; or it was claimed alone, since it has failed before."""
    handler = registered(Recorder())
    sent("a0", "b1", "a2", "b3")
    sequence("default")
    delivery = Process("mail").claim(4 if known else 1)
    in_force = limits(delivery.group, registered_as("orders", "mail"), "default")
    if known:
        keep_below(delivery, 1)
    assert expire(delivery, in_force.max_retries, timedelta(0), dead=True)
    assert (holds(), Cursor.objects.get().next_offset) == ({"a": 0}, 1)
    drain()
    assert handler.of("a") == ["a0", "a2"]
    assert handler.of("b") == ["b1", "b3"]
    assert audit("default") == []
