"""What telemetry costs: nearly nothing where it is not used, and little where it is.

Run by ``pytest -m bench tests/lab/benchmarks/test_telemetry.py``. It prints what it has measured.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from streams import consumer, telemetry
from streams.consume.registry import Registration, registrations

pytestmark = [pytest.mark.bench, pytest.mark.usefixtures("clean_registry", "quiet")]

# In microseconds.
OF_A_SEND, OF_A_MESSAGE = 0.3, 0.05
# With metrics: an observation of the handler call, and one of the way from send() to it.
OF_A_MESSAGE_COUNTED = 2.0


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a process that nobody scrapes, and with a look for tracing, as each one has it."""
    monkeypatch.setattr(telemetry, "observers", ())
    telemetry.look_for(lambda: None)
    yield
    telemetry.look_for(None)


def microseconds(work: Callable[[], object], number: int = 1_000) -> float:
    """The least of many repetitions: other processes only make it longer."""
    return min(timeit.repeat(work, number=number, repeat=300)) / number * 1e6


def registration() -> Registration:
    if not list(registrations()):
        consumer("orders", group="mail")(lambda message: None)
    (one,) = registrations()
    return one


class Stretch:
    class partition:  # noqa: N801
        number = 0

    kind, attempt, pk, client_id = "new", 1, 1, "c"


class Message:
    created_at = datetime.now(UTC)


def test_a_send_without_observers_costs_a_look(capsys: pytest.CaptureFixture[str]) -> None:
    def inner(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any, i: Any) -> None:
        pass

    def plain() -> None:
        pass

    def guarded() -> None:
        if telemetry.active():
            raise AssertionError
        inner(1, 2, 3, 4, 5, 6, 7, 8, 9)

    cost = microseconds(guarded) - microseconds(plain)
    with capsys.disabled():
        print(f"\na send without telemetry: +{cost:.3f} µs")
    assert cost <= OF_A_SEND


def test_a_message_without_observers_costs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def handler(message: Any) -> None:
        pass

    one = registration()
    assert telemetry.around(handler, one, Stretch(), "default") is handler
    # Of a delivery, so of as many messages as it has: at worst of one.
    cost = microseconds(lambda: telemetry.around(handler, one, None, "default"))
    with capsys.disabled():
        print(
            f"\na delivery without telemetry: +{cost:.3f} µs; of 10 messages each {cost / 10:.3f}"
        )
    assert cost / 10 <= OF_A_MESSAGE


def test_a_message_with_metrics_costs_two_observations(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("prometheus_client")
    from streams.metrics import process

    def handler(message: Any) -> None:
        pass

    monkeypatch.setattr(process._observer._clock, "_known", {"default": (0.0, float("inf"))})
    counted = process._observer.around(handler, registration(), Stretch(), "default")
    message = Message()
    cost = microseconds(lambda: counted(message)) - microseconds(lambda: handler(message))
    with capsys.disabled():
        print(f"\na message with metrics: +{cost:.2f} µs")
    assert cost <= OF_A_MESSAGE_COUNTED
