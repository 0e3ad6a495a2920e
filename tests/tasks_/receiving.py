"""Receives the signals of tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def receiving(signal: Any, found: list[Any]) -> Iterator[None]:
    """Append the results that the signal tells of to ``found``."""

    def receive(task_result: Any, **about: Any) -> None:
        found.append(task_result)

    signal.connect(receive)
    try:
        yield
    finally:
        signal.disconnect(receive)
