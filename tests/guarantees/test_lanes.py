"""Lanes: the keys of a claim run side by side, each in its order, and nothing done is repeated."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connections

from streams import Outgoing, ReceivedMessage, Reject, Retry, consumer, runtime_settings, send_many
from streams.chaos.forks import in_fork
from streams.consume.outcome.any_order import Ends, bits, settle_any_order
from streams.consume.outcome.expire import expire
from streams.consume.outcome.settle import release
from streams.errors import InvalidConsumer, LeaseLost
from streams.log.sequencer import sequence
from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    HeldKey,
    RetryMessage,
    State,
    SystemConfig,
)
from streams.observe.audit.walk import audit
from streams.operate.acts.act import Consent
from streams.operate.acts.reset import ResetGroup
from streams.process.deaths import Deaths
from streams.process.shared.progress_file import ProgressFile
from streams.steps.sweep import sweep
from streams.testing import advance
from tests.consuming import LONG_AFTER, MINUTE, Process
from tests.faults import Once, statements
from tests.hostapp.models import Handled
from tests.proxy import Proxy

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
    pytest.mark.timeout(400),
]

COMMIT, SETTLE = b"COMMIT", b"UPDATE `ems_topic_group_log`"
CLAIM, KEYS = b"INSERT INTO `ems_topic_group_log`", b"SELECT `offset`, `key`"

Handler = Callable[[Any], Any]


def registered(handler: Handler, *, lanes: int = 4, **options: Any) -> None:
    consumer("orders", group="mail", ordered="key", lanes=lanes, start="earliest", **options)(
        handler
    )


def sent(*bodies: str) -> None:
    """Send messages with these bodies; the first character of each is its key, "-" is none."""
    keys = {"-": None}
    send_many([Outgoing("orders", body, key=keys.get(body[0], body[0])) for body in bodies])


def note(message: ReceivedMessage, what: str) -> None:
    place = {"group": "mail", "topic": "orders", "partition": message.partition}
    Handled.objects.create(**place, offset=message.offset, value=what)


def noted(what: str) -> Counter[int]:
    return Counter(Handled.objects.filter(value=what).values_list("offset", flat=True))


def waiting() -> dict[int, tuple[int, bool]]:
    """Return the attempt of each retry by its offset, and whether it is parked."""
    rows = RetryMessage.objects.order_by("offset")
    return {row.offset: (row.attempt, row.due_at is None) for row in rows}


def finish() -> None:
    for _round in range(30):
        advance(LONG_AFTER)
        sweep("default")
        Process("mail").run_until_idle()
        if not (RetryMessage.objects.exists() or Delivery.objects.open().exists()):
            return
    raise AssertionError("it never comes to an end")


@pytest.mark.parametrize(
    "options",
    [
        {"lanes": 4},
        {"lanes": 4, "ordered": True},
        {"lanes": 4, "ordered": "key", "atomic": True},
        {"lanes": 4, "ordered": "key", "batch": 5},
        {"lanes": 0, "ordered": "key"},
        {"lanes": 64, "ordered": "key"},
    ],
)
def test_lanes_that_could_not_keep_a_promise_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidConsumer, match="lanes"):
        consumer("orders", group="mail", **options)(lambda message: None)


def test_as_many_keys_run_at_once_as_there_are_lanes() -> None:
    together = threading.Barrier(4)

    def handle(message: ReceivedMessage) -> None:
        together.wait(timeout=20)

    registered(handle)
    sent(*(f"{key}{n}" for n in range(3) for key in "abcd"))
    process = Process("mail")
    process.run_until_idle()
    assert process.feed.totals.done == 12
    assert [row.state for row in Delivery.objects.all()] == [State.DONE]
    assert audit("default") == []


def test_a_call_is_made_although_its_lane_cannot_reach_the_database_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without its end the claim would wait for ever, and its lease be extended."""
    seen: list[str] = []
    process: list[Process] = []

    def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)
        ConsumerGroup.objects.update(paused=True)
        feed = process[0].feed
        feed._fresh_until = 0.0
        assert feed.limits() is None
        runtime_settings.forget()

    def lost() -> None:
        raise OperationalError(2006, "Server has gone away")

    def away(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if "ems_system_config" in sql and "-lane-" in threading.current_thread().name:
            lost()
        return execute(sql, *rest)

    def consume() -> None:
        process[0].worker.step()
        connections.close_all()

    registered(handle, lanes=2)
    sent("a0", "a1", "a2")
    sequence("default")
    process.append(Process("mail"))
    monkeypatch.setattr("streams.process.lanes.close_old_connections", lost)
    # The pool of in_thread would wait for it without an end.
    thread = threading.Thread(target=consume, daemon=True)
    with statements(away):
        thread.start()
        thread.join(20)
    assert seen == ["a0", "a1", "a2"]
    assert not thread.is_alive()
    assert Delivery.objects.get().state == State.DONE


def test_a_key_is_in_one_lane_at_a_time_and_in_its_order() -> None:
    running: set[str] = set()
    seen: list[str] = []

    def handle(message: ReceivedMessage) -> None:
        key = message.body[0]
        assert key not in running
        running.add(key)
        seen.append(message.body)
        time.sleep(0.001)
        running.remove(key)

    registered(handle)
    bodies = [f"{key}{n:02}" for n in range(10) for key in "aab"]
    bodies = [f"{body}{place}" for place, body in enumerate(bodies)]
    sent(*bodies)
    Process("mail").run_until_idle()
    for key in "ab":
        of_key = [body for body in bodies if body[0] == key]
        assert [body for body in seen if body[0] == key] == of_key
    assert not RetryMessage.objects.exists()


def test_a_failed_key_waits_and_the_claim_goes_on_without_it() -> None:
    seen: list[str] = []

    def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if message.body == "a1" and message.attempt == 1:
            raise Retry(delay=60)
        if message.body == "c0":
            raise Reject("odd")

    registered(handle)
    sent("a0", "a1", "b0", "c0", "a2", "b1", "-x", "c1", "b2")
    Process("mail").run_until_idle()
    (claim,) = Delivery.objects.filter(kind="new")
    assert (claim.state, claim.failed, claim.dead) == (State.RETRY, 2, 1)
    # What is behind a dead letter may go on.
    assert waiting() == {1: (2, False), 4: (1, True)}
    assert HeldKey.objects.get().key == "a"
    assert audit("default") == []
    advance(MINUTE)
    Process("mail").run_until_idle()
    counted = Counter(seen)
    assert counted.pop("a1") == 2
    assert set(counted.values()) == {1}
    assert [body for body in seen if body[0] == "a"] == ["a0", "a1", "a1", "a2"]
    assert [body for body in seen if body[0] == "c"] == ["c0", "c1"]
    assert not HeldKey.objects.exists()
    assert DeadMessage.objects.count() == 1
    assert audit("default") == []


def test_when_no_more_may_be_parked_what_is_done_in_lanes_is_not_repeated() -> None:
    SystemConfig.objects.create(name="parkedMessagesMax", value=1)
    runtime_settings.forget()
    seen: list[str] = []

    def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if message.body in ("z0", "a0", "b0") and message.attempt == 1:
            raise Retry(delay=60)

    registered(handle)
    sent("z0")
    Process("mail").run_until_idle()  # its key takes all the room
    sent("a0", "b0", "c0", "a1", "d0", "b1")
    Process("mail").run_until_idle()
    advance(MINUTE)
    Process("mail").run_until_idle()
    assert Counter(seen) == {"z0": 2, "a0": 2, "b0": 2, "c0": 1, "d0": 1, "a1": 1, "b1": 1}
    assert audit("default") == []


def test_a_process_that_stops_repeats_nothing() -> None:
    """Offset 1 runs while others are done; 3 waits for its key when the process stops."""
    others_done = threading.Event()
    process: list[Process] = []

    def handle(message: ReceivedMessage) -> None:
        note(message, "begun")
        if message.body == "a0":
            assert others_done.wait(20)
        if message.body == "d0":
            process[0].lifecycle.stop()
            others_done.set()

    registered(handle, lanes=2)
    sent("b0", "a0", "c0", "a1", "d0", "e0", "a2", "f0")
    process.append(Process("mail"))
    process[0].run_until_idle()
    # Of its key, 3 comes first: it is due now, and 6 was not claimed any more.
    assert waiting() == {3: (1, False)}
    assert Cursor.objects.get().next_offset == 5
    assert audit("default") == []
    finish()
    assert noted("begun") == dict.fromkeys(range(8), 1)
    assert not HeldKey.objects.exists()
    assert audit("default") == []


@pytest.fixture
def folder(tmp_path: Path, ems_settings: Any) -> None:
    ems_settings(STATE_DIR=str(tmp_path))


@pytest.mark.usefixtures("folder")
def test_a_kill_repeats_only_the_calls_that_ran() -> None:
    both_run = threading.Event()

    def handle(message: ReceivedMessage) -> None:
        note(message, "begun")
        if message.body == "a0" and message.attempt == 1:
            both_run.set()
            time.sleep(20)  # until the kill
        if message.body == "d0" and message.attempt == 1:
            assert both_run.wait(20)
            os.kill(os.getpid(), signal.SIGKILL)
        note(message, "done")

    def consume() -> None:
        Process("mail", file=ProgressFile("default", 1)).run_until_idle()

    registered(handle, lanes=2)
    sent("a0", "b0", "a1", "c0", "d0", "e0", "f0")
    assert in_fork(consume) == -9
    before = noted("done")
    assert before == {1: 1, 3: 1}
    assert Deaths("default").noticed()
    assert Deaths("default").recover() == 1
    # 0 and 4 ran; 2 waits for 0; what is behind has not begun, and is claimed again.
    assert waiting() == {0: (2, False), 2: (1, True), 4: (2, False)}
    assert Cursor.objects.get().next_offset == 5
    (dead,) = Delivery.objects.all()
    assert (dead.state, dead.failed) == (State.RETRY, 2)
    assert set(dead.failures()) == {0, 4}
    assert audit("default") == []
    Process("mail").run_until_idle()
    assert noted("begun") == {0: 2, 1: 1, 2: 1, 3: 1, 4: 2, 5: 1, 6: 1}
    assert not HeldKey.objects.exists()
    assert audit("default") == []


@pytest.mark.usefixtures("folder")
def test_a_message_that_ends_each_of_its_processes_runs_alone_and_dies_alone() -> None:
    def handle(message: ReceivedMessage) -> None:
        note(message, "begun")
        if message.body == "a0":
            os.kill(os.getpid(), signal.SIGKILL)
        note(message, "done")

    def consume() -> None:
        Process("mail", file=ProgressFile("default", 1)).run_until_idle()

    registered(handle, lanes=2, max_retries=3)
    sent("b0", "a0", "b1", "a1", "c0")
    for _death in range(4):
        advance(LONG_AFTER)
        assert in_fork(consume) == -9
        assert Deaths("default").recover() == 1
        if (row := RetryMessage.objects.filter(offset=1).first()) and row.attempt > 2:
            assert row.alone
    finish()
    assert DeadMessage.objects.get().offset == 1
    assert noted("begun")[1] == 4
    assert set(noted("done")) == {0, 2, 3, 4}
    assert audit("default") == []


def six_claimed() -> Delivery:
    registered(lambda message: None)
    sent("a0", "b0", "c0", "a1", "d0", "e0")
    sequence("default")
    return Process("mail").claim(6, timedelta(minutes=1))


def test_of_a_host_that_is_gone_what_was_settled_behind_a_call_is_not_repeated() -> None:
    claim = six_claimed()
    done = bits([0, 2, 4], claim.first_offset)
    assert settle_any_order([Ends(claim, done)], "default") == []
    assert claim.progress == 1
    Consumer.objects.all().delete()
    advance(LONG_AFTER)
    sweep("default")
    # 1 and 3 may have run. Behind 4 the cursor goes on.
    assert waiting() == {1: (2, False), 3: (2, False)}
    assert Cursor.objects.get().next_offset == 5
    assert audit("default") == []
    finish()
    assert not HeldKey.objects.exists()
    assert Cursor.objects.get().next_offset == 6
    assert audit("default") == []


def test_what_is_settled_in_lanes_while_it_is_given_up_is_not_claimed_again() -> None:
    """An operator reads the claim; before he has locked it, its client settles more."""
    claim = six_claimed()
    settle_any_order([Ends(claim, bits([1], claim.first_offset))], "default")
    read = Delivery.objects.get()
    settle_any_order([Ends(claim, bits([1, 2, 4], claim.first_offset))], "default")
    assert expire(read, None, timedelta(0), given_up=True) is None
    assert expire(Delivery.objects.get(), None, timedelta(0), given_up=True) is not None
    assert waiting().keys() == {0, 3}  # 3 has the key of 0
    assert Cursor.objects.get().next_offset == 5
    assert audit("default") == []


def test_a_reset_takes_a_claim_in_lanes_back() -> None:
    registered(lambda message: note(message, "done"))
    sent("a0", "b0", "c0", "a1", "d0", "e0")
    sequence("default")
    claim = Process("mail").claim(6, timedelta(minutes=1))
    assert settle_any_order([Ends(claim, bits([1, 3], claim.first_offset))], "default") == []
    ResetGroup(to="earliest").run(ConsumerGroup.objects.get(), "default", Consent("me", force=True))
    with pytest.raises(LeaseLost):
        release(claim)
    Process("mail").run_until_idle()
    assert noted("done") == dict.fromkeys(range(6), 1)
    assert not Delivery.objects.open().exists()
    assert audit("default") == []


@pytest.mark.mysql
@pytest.mark.parametrize("statement", [CLAIM, COMMIT, KEYS, SETTLE])
@pytest.mark.parametrize("fault", ["lose_reply_to", "cut_before"])
def test_no_call_is_repeated_whatever_reply_is_lost(
    proxied: Proxy, fault: str, statement: bytes
) -> None:
    """COMMIT is that of the claim."""

    def handle(message: ReceivedMessage) -> None:
        note(message, "begun")
        if message.body == "b0" and message.attempt == 1:
            raise Retry(delay=60)

    registered(handle, lanes=2)
    sent("a0", "b0", "a1", "c0", "b1", "d0")
    sequence("default")
    process = Process("mail")

    def arm(execute: Callable[[], Any]) -> Any:
        done = execute()
        getattr(proxied, fault)(COMMIT)
        return done

    if statement == COMMIT:
        with statements(Once("INSERT INTO `ems_topic_group_log`", arm)):
            process.run_until_idle()
    else:
        getattr(proxied, fault)(statement)
        process.run_until_idle()
    assert proxied.fired == [statement]
    assert not Delivery.objects.open().exists()
    assert waiting() == {1: (2, False), 4: (1, True)}
    assert noted("begun") == {0: 1, 1: 1, 2: 1, 3: 1, 5: 1}
    finish()
    assert noted("begun") == {0: 1, 1: 2, 2: 1, 3: 1, 4: 1, 5: 1}
    assert audit("default") == []


@pytest.mark.parametrize("batch", [None, 12])
def test_what_a_group_does_not_want_waits_for_no_key(batch: int | None) -> None:
    """Behind a message of its key that has failed in the same claim, it is passed over as ever."""
    seen: list[str] = []

    def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if message.body == "a2" and message.attempt == 1:
            raise Retry(delay=60)

    def handle_all(messages: Sequence[ReceivedMessage]) -> dict[ReceivedMessage, Exception]:
        seen.extend(message.body for message in messages)
        return {m: Retry(delay=60) for m in messages if m.body == "a2" and m.attempt == 1}

    if batch:
        registered(handle_all, lanes=1, batch=batch, tags=["paid"])
    else:
        registered(handle, tags=["paid"])
    bodies = [f"{key}{n}" for n in range(6) for key in "ab"]
    tags = {body: "paid" if body[1] in "024" else "sent" for body in bodies}
    send_many([Outgoing("orders", body, key=body[0], tag=tag) for body, tag in tags.items()])
    Process("mail").run_until_idle()
    assert sorted(seen) == ["a0", "a2", *(["a4"] if batch else []), "b0", "b2", "b4"]
    assert waiting() == {4: (2, False), 8: (1, True)}
    advance(MINUTE)
    Process("mail").run_until_idle()
    assert [body for body in seen if body[0] == "a"][-2:] == ["a2", "a4"]
    assert sum(row.passed for row in Delivery.objects.all()) == 6
    assert not HeldKey.objects.exists()
    assert audit("default") == []


def test_coroutines_of_different_keys_run_side_by_side_in_lanes() -> None:
    running: set[str] = set()
    most: list[int] = []
    seen: list[str] = []
    together = threading.Barrier(3)

    async def handle(message: ReceivedMessage) -> None:
        assert message.body[0] not in running
        running.add(message.body[0])
        await asyncio.to_thread(together.wait, 20)
        most.append(len(running))
        seen.append(message.body)
        await asyncio.to_thread(together.wait, 20)
        running.discard(message.body[0])

    registered(handle, lanes=3)
    sent(*(f"{key}{n}" for n in range(4) for key in "abc"))
    Process("mail").run_until_idle()
    assert max(most) == 3
    for key in "abc":
        assert [body for body in seen if body[0] == key] == [f"{key}{n}" for n in range(4)]
    assert not RetryMessage.objects.exists()
    assert audit("default") == []


def test_lanes_start_no_more_calls_than_the_rate_allows() -> None:
    seen: list[str] = []
    registered(lambda message: seen.append(message.body), rate="6/h", burst=3)
    sent(*(f"{key}{n}" for n in range(4) for key in "abc"))
    process = Process("mail")
    process.run_until_idle()
    # What has no start yet is given back as it was claimed. Of the starts that are there at first
    # the oldest lasts for 50 ms, and may go unused.
    assert 2 <= len(seen) <= 4
    assert waiting() == {} or all(attempt == 1 for attempt, _parked in waiting().values())
    assert not Delivery.objects.filter(failed__gt=0).exists()
    assert audit("default") == []


def seconds_for(messages: int, lanes: int) -> float:
    group = f"g{lanes}"
    topic = f"t{lanes}"
    options: dict[str, Any] = {"ordered": "key", "lanes": lanes, "start": "earliest"}
    consumer(topic, group=group, **options)(lambda message: time.sleep(0.02))
    send_many([Outgoing(topic, n, key=str(n % 50)) for n in range(messages)])
    process = Process(group)
    began = time.monotonic()
    process.run_until_idle()
    took = time.monotonic() - began
    assert process.feed.totals.done == messages
    return took


@pytest.mark.exhaustive
@pytest.mark.mysql
def test_four_lanes_do_three_times_as_much_of_one_partition() -> None:
    """The handler waits 20 ms, as for another service; the topic has one partition."""
    assert seconds_for(200, 1) > 3 * seconds_for(200, 4)
