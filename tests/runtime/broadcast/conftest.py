"""Clients of broadcast groups, with a state directory for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from streams import consumer
from tests.broadcasting import BroadcastProcess


@pytest.fixture(autouse=True)
def state_dir(tmp_path: Path, ems_settings: Callable[..., None]) -> Path:
    ems_settings(STATE_DIR=str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def seen() -> list[Any]:
    return []


@pytest.fixture
def prices(clean_registry: None, seen: list[Any]) -> None:
    """Register a broadcast consumer that records what it gets, from the beginning."""
    consumer("prices", group="cache", mode="broadcast", start="earliest")(seen.append)


@pytest.fixture
def kept_open(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Connections stay open between steps, as in ``ems_consume``."""
    for connection in connections.all():
        monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)
    connections.close_all()
    yield
    connections.close_all()


@pytest.fixture
def start(kept_open: None) -> Iterator[Callable[..., BroadcastProcess]]:
    """Start a client: ``start("cache", "left")``. Its name is free again when the test ends."""
    processes: list[BroadcastProcess] = []

    def begin(group: str = "cache", *name: str, **options: Any) -> BroadcastProcess:
        processes.append(BroadcastProcess(group, *name, **options))
        return processes[-1]

    yield begin
    for process in processes:
        process.close()
