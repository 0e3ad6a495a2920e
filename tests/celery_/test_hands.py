"""What a worker of Celery has in hand is neither lost nor repeated when the database goes away.

Each write is cut at each of its statements, and given up: only its repetition knows what is ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
from tests.sessions import Session

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mysql]


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


@pytest.mark.parametrize("point", range(1, 26))
@pytest.mark.parametrize("done", [False, True])
def test_a_write_that_was_given_up_is_made_again_whole(
    engine: Engine, point: int, done: bool, second_connection: Callable[[], Session]
) -> None:
    hands, tags = hands_of(engine)
    engine.begun(tags)

    def flush() -> None:
        engine._guarded(lambda: float(hands.flush()))

    with Severed(point, second_connection(), done=done):
        hands.ack(tags[1])
        flush()
        hands.ack(tags[4])
        hands.reject(tags[2], requeue=True)
        flush()
        hands.ack(tags[5])
        hands.reject(tags[0], requeue=False)
        flush()
    while hands.pending:
        flush()
    assert engine.client is not None
    hands.give_back_strays(engine.client.client_id)
    assert [(row.first_offset, row.last_offset) for row in Delivery.objects.held()] == [(3, 3)]
    assert hands.ack(tags[3])
    flush()
    assert not Delivery.objects.open().exists()
    assert not Delivery.objects.filter(state=State.RELEASED).exists()
    assert [*RetryMessage.objects.values_list("offset", "attempt")] == [(2, 2)]
    assert [*DeadMessage.objects.values_list("offset", flat=True)] == [0]
    assert audit("default") == []
