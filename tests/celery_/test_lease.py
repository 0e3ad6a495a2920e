"""A worker of Celery keeps its lease in each queue, and what it has fetched, whatever goes away."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from functools import partial
from itertools import count
from typing import Any
from unittest.mock import Mock, patch

import pytest
from django.db import OperationalError
from kombu import Connection, Exchange, Queue
from kombu import Consumer as KombuConsumer

from streams import Outgoing, send, send_many
from streams.celery import control
from streams.celery import engine as engine_module
from streams.celery.engine import Engine, Intake
from streams.celery.hands import Hands
from streams.celery.naming import Naming
from streams.chaos.forks import in_fork
from streams.log.bodies import stored_messages
from streams.log.sequencer import sequence
from streams.models import (
    Consumer,
    ConsumerGroup,
    Delivery,
    Kind,
    Partition,
    RetryMessage,
    State,
    Step,
    Topic,
    UtcNow,
)
from streams.models.consumer import LEASE
from streams.operate.topic_deletion import TopicDeletion
from streams.process.deaths import Deaths
from streams.process.shared.client import Client
from streams.process.shared.death_lock import DeathLock
from streams.process.shared.progress_file import ProgressFile, left_in
from streams.steps.sweep import sweep
from tests.faults import Guillotine
from tests.processes import wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.any_database]

TOPICS = {"orders": "celery.orders", "mails": "celery.mails"}


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Return an engine without threads, which consumes two queues and has a message of each."""
    monkeypatch.setattr(Engine, "_begin", lambda *_: None)
    engine = Engine(Naming.of(None, {}), Mock())
    intake = Intake(prefetch=100)
    for queue, topic in TOPICS.items():
        send(topic, queue)
        engine.consume(intake, queue)
    engine._step()
    engine._step()
    yield engine
    engine_module._running.discard(engine)


def own(engine: Engine) -> tuple[Client, Hands, Intake]:
    """Return the client of an engine, what it has in hand, and its only intake."""
    assert engine.client is not None
    assert engine.hands is not None
    (intake,) = engine.intakes
    return engine.client, engine.hands, intake


def delete(topic: str) -> None:
    deletion = TopicDeletion(Topic.objects.get(name=topic), "default", force=True)
    deletion.close()
    deletion.finish()


def renew(engine: Engine) -> None:
    client, hands, _intake = own(engine)

    def step() -> float:
        engine._renew(client, hands)
        return 0.0

    engine._guarded(step)


def look_again(engine: Engine) -> None:
    for _ in range(3):
        engine._poller._refreshed = -math.inf
        engine._guarded(engine.look)


def fetched(engine: Engine) -> list[str]:
    _client, _hands, intake = own(engine)
    return sorted(queue for _tag, queue, _payload in intake.buffer)


def registered(engine: Engine) -> set[str]:
    client, _hands, _intake = own(engine)
    rows = Consumer.objects.filter(client_id=client.client_id)
    return set(rows.values_list("group__topic__name", flat=True))


def test_a_registration_that_failed_is_made_before_the_next_claim(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _hands, intake = own(engine)
    send("celery.letters", "letters")
    engine.consume(intake, "letters")
    join = client.join
    error = OperationalError(1205, "Lock wait timeout exceeded")

    def refuses(group: int) -> None:
        if group not in client.groups:
            raise error

    monkeypatch.setattr(client, "join", refuses)
    engine._guarded(engine._step)
    assert "celery.letters" not in registered(engine)
    assert "letters" not in fetched(engine)
    monkeypatch.setattr(client, "join", join)
    look_again(engine)
    assert "celery.letters" in registered(engine)
    assert "letters" in fetched(engine)
    assert sweep("default") == 0
    assert Delivery.objects.held().count() == 3


def test_a_queue_that_is_consumed_during_a_look_is_claimed_from_only_after_its_registration(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _client, _hands, intake = own(engine)
    send("celery.letters", "letters")
    sequence("default", list(Partition.objects.values_list("pk", flat=True)))
    read = engine.control.read

    def consumes(due: Any) -> bool:
        engine.consume(intake, "letters")
        return read(due)

    monkeypatch.setattr(engine.control, "read", consumes)
    monkeypatch.setattr(engine, "wake", lambda: None)
    engine._guarded(engine.look)
    assert not Delivery.objects.held().filter(group__topic__name="celery.letters").exists()
    monkeypatch.setattr(engine.control, "read", read)
    look_again(engine)
    assert "celery.letters" in registered(engine)
    assert "letters" in fetched(engine)


def test_what_was_fetched_waits_while_the_lease_is_in_doubt(engine: Engine) -> None:
    client, _hands, _intake = own(engine)
    ready: Any = engine._ready
    client._lease_ends = 0.0
    ready.reset_mock()
    renew(engine)
    assert engine.alive
    assert ready.called
    assert fetched(engine) == ["mails", "orders"]
    assert Delivery.objects.held().count() == 2


def test_nothing_is_handed_over_while_the_lease_is_in_doubt() -> None:
    handed: list[str] = []
    with Connection("ems://") as connection:
        connection.SimpleQueue("orders").put("one")
        channel = connection.channel()
        queue = Queue("orders", Exchange(""), routing_key="orders")
        consumer = KombuConsumer(
            channel, [queue], callbacks=[lambda body, _message: handed.append(body)]
        )
        consumer.consume()
        transport = connection.transport
        wait_for(lambda: bool(channel.intake.buffer))
        client = transport.engine.client
        with patch.object(Client, "alive", False):
            assert transport.pump() == 0
            assert channel.intake.buffer
        assert client.alive
        assert transport.pump() == 1
    assert handed == ["one"]


def test_a_queue_that_was_deleted_takes_no_lease_from_the_others(engine: Engine) -> None:
    client, hands, _intake = own(engine)
    client_id = client.client_id
    deleted = ConsumerGroup.objects.get(topic__name="celery.mails").pk
    delete("celery.mails")
    renew(engine)
    assert engine.alive
    assert client.client_id == client_id
    assert deleted not in client.groups
    assert hands._hands
    assert Delivery.objects.held().count() == 1
    # The queue is there again, and has a client.
    for supply in _supplies(engine):
        supply._fresh_until = 0.0
    look_again(engine)
    assert registered(engine) == {*TOPICS.values()}
    send("celery.mails", "again")
    look_again(engine)
    assert fetched(engine).count("mails") == 2
    assert sweep("default") == 0


def _supplies(engine: Engine) -> list[Any]:
    _client, _hands, intake = own(engine)
    return intake.supplies


def test_a_lease_that_was_lost_while_a_queue_was_deleted_is_taken_anew(engine: Engine) -> None:
    client, hands, intake = own(engine)
    client_id = client.client_id
    delete("celery.mails")
    Consumer.objects.filter(client_id=client_id).update(lease_until=UtcNow(-LEASE))
    Step.objects.update(last_run_at=UtcNow())  # no outage: nobody gets time
    renew(engine)
    assert engine.alive
    assert client.client_id != client_id
    assert not hands._hands
    assert not intake.buffer
    assert registered(engine) == {"celery.orders"}
    assert not Consumer.objects.filter(client_id=client_id).exists()


@pytest.mark.parametrize("claim", ["claim", "claim_sent"])
def test_what_is_claimed_under_an_id_whose_lease_has_ended_is_given_back(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, claim: str
) -> None:
    """The claim has waited out an outage, and the thread that renews was the first to come back."""
    client, hands, intake = own(engine)
    client_id = client.client_id
    supply = _supplies(engine)[0]
    claims = getattr(supply, claim)

    def late(claimed_as: str, *rest: Any) -> Any:
        Consumer.objects.filter(client_id=client_id).update(lease_until=UtcNow(-LEASE))
        Step.objects.update(last_run_at=UtcNow())  # no outage: nobody gets time
        renew(engine)
        return claims(claimed_as, *rest)

    send("celery.orders", "late")
    with monkeypatch.context() as patched:
        patched.setattr(supply, claim, late)
        if claim == "claim":
            sequence("default")
            engine._claim_once(intake, 1)
        else:
            engine._claim_sent({"celery.orders"})
    assert client.client_id != client_id
    assert fetched(engine) == []
    assert not hands._hands
    look_again(engine)
    assert fetched(engine) == ["orders"]
    (hand,) = hands._hands
    assert hand.delivery.client_id == client.client_id


@pytest.mark.mysql
def test_a_queue_that_is_consumed_later_is_covered_by_the_lock_too(engine: Engine) -> None:
    client, _hands, intake = own(engine)
    lock = DeathLock(client, "default")
    lock.keep()
    assert lock.held
    engine.consume(intake, "letters")
    engine._step()
    rows = Consumer.objects.filter(client_id=client.client_id)
    lock.keep()
    assert rows.count() == 3
    assert not rows.filter(locked_on="").exists()


def test_who_waits_no_more_gets_no_message(engine: Engine) -> None:
    send("celery.letters", 1)
    assert engine.ask(lambda: engine.take_one("letters"), patience=0) is None
    engine.look()
    assert Delivery.objects.held().count() == 2


def test_a_message_that_comes_too_late_for_whoever_waited_is_given_back(
    engine: Engine,
) -> None:
    _client, hands, _intake = own(engine)
    send("celery.letters", 1)
    begun, over = threading.Event(), threading.Event()

    def take() -> Any:
        begun.set()
        assert over.wait(30)
        return engine.take_one("letters")

    def late(found: tuple[int, Any]) -> None:
        engine.give_back_one(found[0])

    def ask() -> None:
        # It waits no more once the work has begun, and before it ends.
        with patch.object(
            engine_module, "wait", lambda some, _patience: (begun.wait(30), wait(some, 0))[1]
        ):
            assert engine.ask(take, late=late) is None
        over.set()

    asker = threading.Thread(target=ask)
    asker.start()
    wait_for(lambda: bool(engine._asked))
    engine.look()
    asker.join()
    hands.flush()
    assert Delivery.objects.held().count() == 2
    assert engine.take_one("letters") is not None


def test_what_is_claimed_while_its_channel_is_closed_is_given_back(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _client, hands, intake = own(engine)
    send("celery.orders", "late")
    for supply in _supplies(engine):
        monkeypatch.setattr(supply, "claim", _closing(engine, intake, supply.claim))
    engine.look()
    assert not intake.buffer
    hands.flush()
    assert not Delivery.objects.held().exists()


def _closing(engine: Engine, intake: Intake, claim: Callable[..., Any]) -> Callable[..., Any]:
    """Return a claim during which a channel ends with all of its queues."""

    def claims(*args: Any) -> Any:
        taken = claim(*args)
        for queue in list(intake.queues):
            engine.cancel(intake, queue)
        engine.intakes.clear()
        return taken

    return claims


def test_after_a_split_the_file_says_of_each_part_what_has_ended(engine: Engine) -> None:
    _client, hands, _intake = own(engine)
    send_many([Outgoing("celery.orders", n) for n in range(6)])
    engine.look()
    first = max(hand.delivery.pk for hand in hands._hands)
    tags = [tag for tag, (hand, _at) in sorted(hands._places.items()) if hand.delivery.pk == first]
    assert len(tags) == 6
    hands.begin([tags[3]])
    hands.reject(tags[3], requeue=False)
    hands.flush()
    hands.begin([*tags[:2], tags[5]])
    assert hands.ack(tags[0])
    assert hands.ack(tags[5])
    file = engine._file
    assert isinstance(file, ProgressFile)
    with file.path.open("rb") as there:
        left = left_in(there.fileno(), "default")
    named = [noted.delivery for noted in left.slots]
    assert len(named) == len(set(named))
    start = Delivery.objects.get(pk=first).first_offset
    assert Deaths("default")._end(left)
    rows = Delivery.objects.filter(group__topic__name="celery.orders", first_offset__gte=start)
    ended = {at for row in rows.filter(state=State.DONE) for at in row.offsets}
    assert {start, start + 5} <= ended
    assert not ended & {start + 2, start + 4}


def fetch(point: int, *, after: bool) -> None:
    """Fetch what there is, in a process that is killed before or after one of its statements."""
    Guillotine(point, after=after).install()
    engine = Engine(Naming.of(None, {}), Mock())
    engine.consume(Intake(prefetch=100), "orders")
    engine._step()
    engine._step()


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_statement_while_it_fetches_a_retry_it_spends_no_attempt(
    engine: Engine, after: bool
) -> None:
    _client, hands, _intake = own(engine)
    (tag,) = [tag for tag, (hand, _at) in hands._places.items() if hand.supply.queue == "orders"]
    hands.begin([tag])
    hands.reject(tag, requeue=True)
    hands.flush()
    for point in count(1):
        status = in_fork(partial(fetch, point, after=after))
        assert status in (0, -signal.SIGKILL)
        Deaths("default").recover()
        assert not Delivery.objects.held().filter(kind=Kind.RETRY).exists()
        assert RetryMessage.objects.get().attempt == 2
        if status == 0:
            break
    assert Delivery.objects.filter(kind=Kind.RETRY, state=State.RELEASED).exists()


def test_a_log_that_is_read_in_part_is_read_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail = engine.control.tail
    tail.begin_at_end()
    monkeypatch.setattr(control, "MAX_BATCH", 2)
    send_many([Outgoing(engine.naming.control, n) for n in range(5)])
    sequence("default", [tail.partition])
    end = tail._end()
    first = stored_messages(tail.partition, 0, 2, "default")
    away = OperationalError(2013, "Lost connection")
    with monkeypatch.context() as patched:
        patched.setattr(f"{control.__name__}.stored_messages", Mock(side_effect=[first, away]))
        with pytest.raises(OperationalError):
            tail.read(end)
    assert [row.offset for row in tail.read(end)] == [0, 1, 2, 3, 4]
    assert tail.read(end) == []
