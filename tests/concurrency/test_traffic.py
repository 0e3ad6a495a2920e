"""Everything at once: producers see no deadlock, and every message is done once."""

from __future__ import annotations

import threading

import pytest
from django.db import transaction

from streams import Outgoing, consumer, send, send_many
from streams.consume import registry
from streams.consume.limits import Limits
from streams.deliver.handling import Handling
from streams.log.sequencer import sequence
from streams.models import Delivery, Message, State
from tests.concurrency.conftest import MINUTE, Stream
from tests.processes import PATIENCE_SECONDS
from tests.sessions import Threads

pytestmark = [pytest.mark.mysql, pytest.mark.django_db(transaction=True)]

SENDERS, SEQUENCERS, CONSUMERS = 8, 2, 3
ROUNDS, A_ROUND = 12, 10


def test_sends_see_no_deadlock_while_all_else_runs(
    stream: Stream, in_thread: Threads, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    handled: list[str] = []

    @consumer("orders", group="mail", batch=20)
    def collect(messages):
        handled.extend(message.body for message in messages)

    registration = registry.find("orders", "mail")
    assert registration
    sent, stop = threading.Event(), threading.Event()

    def produce(name: int) -> None:
        for number in range(ROUNDS):
            bodies = iter(f"{name}-{number}-{n}" for n in range(A_ROUND))
            send("orders", next(bodies), delay=0.001)
            with transaction.atomic():
                for _ in range(4):
                    send("orders", next(bodies))
            send_many([Outgoing("orders", body) for body in bodies])
            with pytest.raises(KeyError), transaction.atomic():
                send("orders", "never")
                raise KeyError

    def sequence_all() -> None:
        while not stop.is_set():
            sequence("default")

    def consume(name: int) -> None:
        claimer = stream.claimer(str(name))
        limits = Limits(batch=20, max_retries=16, consume_timeout=MINUTE)
        while not stop.is_set():
            if delivery := claimer.claim(20, MINUTE):
                Handling(delivery, registration, limits).run()
            elif sent.is_set() and len(handled) >= total:
                stop.set()

    total = SENDERS * ROUNDS * A_ROUND
    producers = [in_thread(produce, name) for name in range(SENDERS)]
    others = [in_thread(sequence_all) for _ in range(SEQUENCERS)]
    others += [in_thread(consume, name) for name in range(CONSUMERS)]
    try:
        for future in producers:
            future.result(PATIENCE_SECONDS)
        sent.set()
        stop.wait(PATIENCE_SECONDS)
    finally:
        stop.set()
    for future in others:
        future.result(PATIENCE_SECONDS)
    assert len(handled) == len(set(handled)) == total
    offsets = list(Message.objects.order_by("offset").values_list("offset", flat=True))
    assert offsets == list(range(total))
    assert set(Delivery.objects.values_list("state", flat=True)) == {State.DONE}
