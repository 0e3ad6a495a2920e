"""What a worker of Celery has in hand is neither lost nor repeated when the database goes away.

Each write is cut at each of its statements, and given up: only its repetition knows what is ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from unittest.mock import Mock

import pytest

from streams import Outgoing, send_many
from streams.celery import engine as engine_module
from streams.celery.engine import Engine, Intake
from streams.celery.hands import Hands
from streams.celery.naming import Naming
from streams.database.retrying import PATIENCE
from streams.models import DeadMessage, Delivery, RetryMessage, State
from streams.observe.audit.walk import audit
from tests.faults import Severed
from tests.processes import wait_for
from tests.sessions import Session

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.mysql,
]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Return an engine without threads, which has six messages in hand, and no patience."""
    monkeypatch.setattr(Engine, "_begin", lambda *_: None)
    engine = Engine(Naming.of(None, {}), lambda: None)
    send_many([Outgoing("celery.orders", n) for n in range(6)])
    engine.consume(Intake(prefetch=100), "orders")
    engine._step()
    token = PATIENCE.set(0.0)
    yield engine
    PATIENCE.reset(token)
    engine_module._running.discard(engine)


def hands_of(engine: Engine) -> tuple[Hands, list[int]]:
    """Return what is in hand, and the tags of its messages in the order of their offsets."""
    assert engine.hands is not None
    places = engine.hands._places
    tags = sorted(places, key=lambda tag: places[tag][1])
    assert len(tags) == 6
    return engine.hands, tags


def flush(engine: Engine) -> None:
    assert engine.hands is not None
    hands = engine.hands
    engine._guarded(lambda: float(hands.flush()))


def flush_all(engine: Engine) -> None:
    assert engine.hands is not None
    for _ in range(5):
        if engine.hands.pending:
            flush(engine)
    assert not engine.hands.pending


def give_back_strays(engine: Engine) -> None:
    assert engine.hands is not None
    assert engine.client is not None
    hands, client = engine.hands, engine.client.client_id

    def step() -> float:
        hands.give_back_strays(client)
        return 0.0

    engine._guarded(step)


def held() -> list[tuple[int, int]]:
    return sorted((row.first_offset, row.last_offset) for row in Delivery.objects.held())


@pytest.mark.parametrize("point", range(1, 26))
@pytest.mark.parametrize("done", [False, True])
def test_a_write_that_was_given_up_is_made_again_whole(
    engine: Engine, point: int, done: bool, second_connection: Callable[[], Session]
) -> None:
    hands, tags = hands_of(engine)
    engine.begun(tags)
    with Severed(point, second_connection(), done=done):
        hands.ack(tags[1])
        flush(engine)
        hands.ack(tags[4])
        hands.reject(tags[2], requeue=True)
        flush(engine)
        give_back_strays(engine)  # the look after one that has failed
        hands.ack(tags[5])
        hands.reject(tags[0], requeue=False)
        flush(engine)
    give_back_strays(engine)
    flush_all(engine)
    assert held() == [(3, 3)]
    assert hands.ack(tags[3])
    flush(engine)
    assert not Delivery.objects.open().exists()
    assert not Delivery.objects.filter(state=State.RELEASED).exists()
    assert [*RetryMessage.objects.values_list("offset", "attempt")] == [(2, 2)]
    assert [*DeadMessage.objects.values_list("offset", flat=True)] == [0]
    assert audit("default") == []


@pytest.mark.parametrize("point", range(1, 17))
def test_the_split_of_a_part_takes_nothing_of_the_other_parts(
    engine: Engine, point: int, second_connection: Callable[[], Session]
) -> None:
    hands, tags = hands_of(engine)
    engine.begun(tags)
    hands.reject(tags[1], requeue=True)
    flush(engine)
    with Severed(point, second_connection(), done=True):
        hands.reject(tags[3], requeue=True)
        flush(engine)
    flush_all(engine)
    assert held() == [(0, 0), (2, 2), (4, 5)]
    assert sorted(hand.delivery.first_offset for hand in hands._hands) == [0, 2, 4]
    for number in (0, 2, 4, 5):
        assert hands.ack(tags[number])
    flush(engine)
    assert not hands._hands
    assert not Delivery.objects.open().exists()
    assert audit("default") == []


@pytest.mark.parametrize("point", range(1, 26))
@pytest.mark.parametrize("done", [False, True])
def test_a_retry_whose_fetch_was_cut_off_is_fetched_again(
    engine: Engine, point: int, done: bool, second_connection: Callable[[], Session]
) -> None:
    hands, tags = hands_of(engine)
    engine.begun(tags[:1])
    hands.reject(tags[0], requeue=True)
    flush(engine)
    (intake,) = engine.intakes
    intake.buffer.clear()
    with Severed(point, second_connection(), done=done):
        engine._guarded(engine.look)

    def fetched() -> bool:
        engine._guarded(engine.look)
        return bool(intake.buffer)

    wait_for(fetched)
    assert [payload["body"] for _tag, _queue, payload in intake.buffer] == ["0"]
    assert RetryMessage.objects.get().attempt == 2


def test_a_thread_that_has_much_to_give_back_can_renew_the_lease_meanwhile(engine: Engine) -> None:
    hands, tags = hands_of(engine)
    for tag in tags:
        assert hands.give_back_one(tag)
    for left in (5, 4):
        hands.flush(until=0.0)
        assert sum(last + 1 - first for first, last in held()) == left
        assert hands.pending
    flush_all(engine)
    assert held() == []


def test_a_message_that_cannot_be_read_is_a_dead_letter_and_the_others_of_its_claim_run(
    engine: Engine,
) -> None:
    hands, tags = hands_of(engine)
    for tag in tags:
        hands.ack(tag)
    (intake,) = engine.intakes
    intake.buffer.clear()
    bad = Outgoing("celery.orders", 6, headers={"kombu": "no JSON"})
    send_many([bad, Outgoing("celery.orders", 7)])
    engine.look()
    flush_all(engine)
    assert [payload["body"] for _tag, _queue, payload in intake.buffer] == ["7"]
    assert held() == [(7, 7)]
    letter = DeadMessage.objects.get()
    assert letter.offset == 6
    assert "no message of kombu" in letter.error


def test_what_can_never_be_sent_does_not_keep_others_from_being_claimed(engine: Engine) -> None:
    (intake,) = engine.intakes
    intake.buffer.clear()
    engine._outgoing.append(Outgoing(engine.naming.control, "x" * 100_000_000))
    send_many([Outgoing("celery.orders", 7)])
    engine.look()
    assert len(intake.buffer) == 1
    assert not engine._outgoing


def test_an_error_of_a_write_does_not_end_the_lease(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew = Mock()
    monkeypatch.setattr(engine, "_renew", renew)
    monkeypatch.setattr(engine.hands, "flush", Mock(side_effect=ZeroDivisionError))
    monkeypatch.setattr(engine, "_threads", [Mock()])
    guarded = engine._guarded

    def once(step: Callable[[], float]) -> float:
        engine._stopping = True
        guarded(step)
        return 0.0

    monkeypatch.setattr(engine, "_guarded", once)
    engine._keeps()
    renew.assert_called_once()
