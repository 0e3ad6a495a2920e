"""What a worker of Celery does when it hears that something was sent: it claims that at once."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from django.db import OperationalError

from streams import Outgoing, send, send_many
from streams.celery import engine as engine_module
from streams.celery import supply
from streams.celery.engine import Engine, Intake
from streams.celery.naming import Naming
from streams.celery.supply import Supply
from streams.deliver.opening import Opened, open_whole
from streams.deliver.poller import FEW
from streams.log.sequencer import BUSY_SECONDS, sequence
from streams.models import ConsumerGroup, Delivery, Message, Partition, SystemConfig, Topic
from streams.operate.topic_deletion import TopicDeletion
from tests.sessions import Session

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.any_database]

TOPIC = "celery.orders"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Return an engine without threads, which consumes a queue and has looked once."""
    monkeypatch.setattr(Engine, "_begin", lambda *_: None)
    engine = Engine(Naming.of(None, {}), lambda: None)
    engine.consume(Intake(prefetch=100), "orders")
    engine._step()
    yield engine
    engine_module._running.discard(engine)


@pytest.fixture
def looks(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses of the whole looks from now on."""
    found: list[float] = []
    look = engine.look

    def counted() -> float:
        found.append(look())
        return found[-1]

    monkeypatch.setattr(engine, "look", counted)
    engine._look_at = math.inf  # none is due
    return found


def taken(engine: Engine) -> list[Any]:
    (intake,) = engine.intakes
    return [payload["body"] for _tag, _queue, payload in intake.buffer]


def test_what_was_sent_is_claimed_without_a_look_at_all(engine: Engine, looks: list[float]) -> None:
    for n in range(3):
        send(TOPIC, [n])
        engine._hear({TOPIC})
        engine._step()
        assert len(taken(engine)) == n + 1
    assert not looks
    assert Delivery.objects.held().count() == 3


@pytest.mark.parametrize("heard", [{"shop.orders"}, {TOPIC, "shop.orders"}, set()])
def test_for_other_topics_it_looks_at_all(
    engine: Engine, looks: list[float], heard: set[str]
) -> None:
    send(TOPIC, [1])
    engine._hear(heard)
    engine._step()
    assert len(looks) == 1
    assert len(taken(engine)) == 1


def test_a_whole_look_comes_in_its_time_however_often_something_is_heard(
    engine: Engine, looks: list[float]
) -> None:
    engine._look_at = time.monotonic() + 60
    engine._hear({TOPIC})
    assert 0 < engine._step() <= 60
    assert not looks
    engine._look_at = 0.0  # its time has come
    engine._hear({TOPIC})
    engine._step()
    assert len(looks) == 1


@pytest.mark.parametrize("is_sequenced", [False, True])
def test_a_command_that_was_sent_before_a_task_is_read_before_it_is_claimed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, is_sequenced: bool
) -> None:
    """Also if nothing was heard of the command: a wake-up may be lost."""
    box = engine.control.declare("commands")
    box.bindings.add(("celery.pidbox", "fanout", "", None))
    engine._hear(set())
    engine._step()
    known: list[int] = []
    for name in ("claim", "claim_sent"):

        def noting(self: Supply, *rest: Any, claim: Callable[..., Any]) -> Any:
            known.append(len(box.messages))
            return claim(self, *rest)

        claim = getattr(Supply, name)
        monkeypatch.setattr(
            Supply, name, lambda self, *rest, claim=claim: noting(self, *rest, claim=claim)
        )
    place = '{"properties": {"delivery_info": {"exchange": "celery.pidbox"}}}'
    send(engine.naming.control, {"method": "revoke"}, headers={"kombu": place})
    if is_sequenced:
        sequence("default")
    send(TOPIC, [1])
    engine._hear({TOPIC})
    engine._step()
    assert known
    assert set(known) == {1}
    assert len(taken(engine)) == 1


@pytest.mark.mysql
def test_what_another_process_is_about_to_claim_is_left_to_it_for_a_moment(
    engine: Engine, looks: list[float], second_connection: Callable[..., Session]
) -> None:
    send(TOPIC, [1])
    lock = "SELECT id FROM ems_partition WHERE id = %s FOR UPDATE"
    place = Partition.objects.get(topic__name=TOPIC).pk
    other = second_connection()
    other.connection.set_autocommit(False)
    other.execute(lock, [place])
    engine._hear({TOPIC})
    assert 0 < engine._step() <= BUSY_SECONDS
    assert not taken(engine)
    other.connection.rollback()
    engine._step()  # nothing more is heard
    assert len(taken(engine)) == 1
    assert not looks


def test_what_another_process_has_moved_into_the_log_is_claimed(engine: Engine) -> None:
    send(TOPIC, [1])
    sequence("default")
    engine._hear({TOPIC})
    engine._step()
    assert len(taken(engine)) == 1


def test_while_much_is_sent_it_looks_at_all(engine: Engine, looks: list[float]) -> None:
    for n in range(FEW + 1):
        send(TOPIC, [n])
    engine._hear({TOPIC})
    engine._step()
    assert not looks
    send(TOPIC, [FEW + 1])
    engine._hear({TOPIC})
    engine._step()
    assert len(looks) == 1
    send(TOPIC, [FEW + 2])
    engine._hear({TOPIC})
    engine._step()
    assert len(looks) == 1
    assert len(taken(engine)) == FEW + 3


def test_without_room_nothing_is_claimed(engine: Engine, looks: list[float]) -> None:
    (intake,) = engine.intakes
    intake.prefetch = 1
    for n in range(2):
        send(TOPIC, [n])
        engine._hear({TOPIC})
        engine._step()
    assert len(taken(engine)) == 1
    assert len(looks) == 1


def look(engine: Engine) -> None:
    """Let the engine look at all, and write what it gives back."""
    engine._hear(set())
    engine._step()
    if engine.hands:
        engine.hands.flush()


@pytest.fixture
def busy(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The engine, which has room for one task, runs one of six, and has fetched four ahead of it.

    Its rate is as if it had handled much until now, and never falls.
    """
    monkeypatch.setattr(engine, "_measure", lambda: None)
    monkeypatch.setattr(engine_module, "STANDS_SECONDS", 30.0)
    engine.rate = 40.0
    (intake,) = engine.intakes
    intake.prefetch = 1
    send_many([Outgoing(TOPIC, [n]) for n in range(6)])
    look(engine)
    assert len(taken(engine)) == 5
    tag, _queue, _payload = intake.buffer.popleft()
    intake.hand_over(tag, "a task")
    engine.begun([tag])
    return engine


def test_what_was_fetched_ahead_of_a_task_that_takes_long_goes_to_an_idle_worker(
    busy: Engine,
) -> None:
    (intake,) = busy.intakes
    other = Engine(Naming.of(None, {}), lambda: None)
    other.consume(Intake(prefetch=100), "orders")
    for _ in range(2):
        look(other)
    assert len(taken(other)) == 1  # what nobody has fetched
    intake.moved_at = time.monotonic() - 60
    for _ in range(3):
        look(busy)
        assert not taken(busy)
    look(other)
    engine_module._running.discard(other)
    assert sorted(taken(other)) == [f"[{n}]" for n in range(1, 6)]
    held = Delivery.objects.held()
    assert sorted(at for row in held for at in row.offsets) == [0, 1, 2, 3, 4, 5]
    assert {row.attempt for row in held} == {1}


def test_what_was_fetched_ahead_is_kept_while_tasks_end(busy: Engine) -> None:
    (intake,) = busy.intakes
    intake.moved_at = time.monotonic() - 60
    (running,) = intake.out
    assert busy.hands is not None
    busy.hands.ack(running)
    intake.end(running)
    tag, _queue, _payload = intake.buffer.popleft()
    intake.hand_over(tag, "the next task")
    look(busy)
    assert len(taken(busy)) == 4
    look(busy)
    assert len(taken(busy)) == 4


def test_what_a_failed_step_has_claimed_is_claimed_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client lives, so nobody else would take it before an hour is over."""

    def fail(*_: Any) -> Opened:
        monkeypatch.setattr(supply, "open_whole", open_whole)
        raise OperationalError(2013, "the connection is lost")

    monkeypatch.setattr(supply, "open_whole", fail)
    send(TOPIC, [1])
    engine._hear({TOPIC})
    with pytest.raises(OperationalError):
        engine._step()
    engine._step()
    assert len(taken(engine)) == 1


def consume_letters(engine: Engine) -> Intake:
    (intake,) = engine.intakes
    engine.consume(intake, "letters")
    engine._step()
    engine._poller._refreshed = -math.inf  # the next look reads which partitions there are
    engine._hear(set())
    engine._step()  # there is nothing
    return intake


def test_a_look_claims_from_all_queues(engine: Engine) -> None:
    consume_letters(engine)
    for topic in (TOPIC, "celery.letters"):
        send(topic, [topic])
    engine._hear(set())
    engine._step()
    assert len(taken(engine)) == 2


def test_while_there_is_much_the_queues_take_turns(engine: Engine) -> None:
    intake = consume_letters(engine)
    intake.prefetch = 1
    for n in range(4):
        for topic in (TOPIC, "celery.letters"):
            send(topic, [n])
    for _ in range(4):
        engine._hear(set())
        engine._step()
        intake.prefetch += 1
    assert [queue for _tag, queue, _payload in intake.buffer] in (
        ["orders", "letters"] * 2,
        ["letters", "orders"] * 2,
    )


def test_of_a_group_that_is_paused_nothing_is_claimed_and_a_look_moves_what_was_sent(
    engine: Engine, looks: list[float]
) -> None:
    ConsumerGroup.objects.update(paused=True)
    for supply_ in engine.intakes[0].supplies:
        supply_._fresh_until = 0.0
    send(TOPIC, [1])
    engine._hear({TOPIC})
    engine._step()
    assert len(looks) == 1
    assert not engine._again
    assert not taken(engine)
    assert not Message.objects.inbox().exists()


@pytest.mark.parametrize("says_events", [False, True])
def test_a_control_topic_that_is_deleted_under_a_worker_is_made_again(
    engine: Engine, says_events: bool
) -> None:
    """Its worker goes on with tasks, and hears the commands that come then."""
    SystemConfig.objects.create(name="autoCreateTopic", value=False)

    def look() -> None:
        engine._poller._refreshed = -math.inf  # it reads which partitions there are
        engine.look()

    box = engine.control.declare("commands")
    box.bindings.add(("celery.pidbox", "fanout", "", None))
    place = '{"properties": {"delivery_info": {"exchange": "celery.pidbox"}}}'
    look()
    send(engine.naming.control, {"method": "one"}, headers={"kombu": place})
    look()
    topic = Topic.objects.get(name=engine.naming.control)
    deletion = TopicDeletion(topic, "default", force=True)
    deletion.close()
    deletion.finish()
    if says_events:
        engine.publish(Outgoing(engine.naming.control, {"method": "event"}))
    look()
    look()
    send(TOPIC, [1])
    send(engine.naming.control, {"method": "two"}, headers={"kombu": place})
    look()
    assert len(taken(engine)) == 1
    methods = [json.loads(payload["body"])["method"] for payload, _row in box.messages]
    assert methods == ["one", "two"]


def test_no_error_ends_the_thread_that_fetches(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engine, "_step", Mock(side_effect=ZeroDivisionError))
    assert engine._guarded(engine._step) == engine_module.AFTER_ERROR_SECONDS
    assert "The broker has failed" in caplog.text
