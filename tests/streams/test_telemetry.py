"""Observers are looked for by one thread at a time."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator

import pytest

from streams import telemetry


@pytest.fixture(autouse=True)
def _no_look_is_left() -> Iterator[None]:
    yield
    telemetry.look_for(None)


def test_while_one_thread_looks_for_observers_no_other_one_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of them would add an observer, and everything would be observed twice."""
    looks: list[str] = []
    other = threading.Thread(target=telemetry.active, name="other")

    def look() -> None:
        looks.append(threading.current_thread().name)
        if len(looks) == 1:
            monkeypatch.setattr(telemetry, "_look_at", -math.inf)  # it takes long
            other.start()
            other.join(10)

    telemetry.look_for(look)
    telemetry.active()
    assert looks == [threading.current_thread().name]
