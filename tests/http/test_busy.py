"""A process whose threads are all at work: what still answers, and who is refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from streams.http import threads
from tests.http.conftest import Api, MakeToken
from tests.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def work(
    transactional_db: None, ems_settings: Callable[..., None]
) -> Iterator[Callable[[int], None]]:
    """Give the one thread of the pool so much work that does not end before the test."""
    ems_settings(HTTP_THREADS=1)
    end = threading.Event()

    def give(jobs: int) -> None:
        for _job in range(jobs):
            threads.pool().submit(end.wait, 10)

    yield give
    end.set()


def test_a_probe_does_not_wait_for_the_requests(api: Api, work: Callable[[int], None]) -> None:
    work(2)
    answer = api.get("/ems/healthz")
    assert (answer.status_code, answer.json()) == (200, {"ready": True})
    assert threads.pool()._work_queue.qsize() == 1  # they still wait


def test_who_comes_when_too_many_wait_is_told_to_come_again(
    api: Api, make_token: MakeToken, work: Callable[[int], None]
) -> None:
    token = make_token("read")
    work(threads.WAITING + 1)
    wait_for(lambda: threads.pool()._work_queue.qsize() == threads.WAITING)
    answer = api.get("/topics", token=token)
    assert (answer.status_code, answer.json()["code"]) == (503, "busy")
    assert answer["Retry-After"] == "1"
    assert threads.pool()._work_queue.qsize() == threads.WAITING


@pytest.mark.mysql
def test_a_lock_of_somebody_else_is_waited_for_some_seconds(
    api: Api,
    make_token: MakeToken,
    second_connection: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "LOCK_SECONDS", 1)
    api.token = make_token("send")
    once = {"body": 1, "dedup_key": "A7"}
    assert api.post("/topics/orders/messages", once).status_code == 201
    other = second_connection()
    other.execute("BEGIN")
    other.execute("SELECT * FROM ems_dedup FOR UPDATE")
    for path, body in [
        ("/topics/orders/messages", once),
        ("/messages", {"messages": [{"topic": "orders", **once}]}),
    ]:
        began = time.monotonic()
        answer = api.post(path, body)
        assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable")
        assert answer["Retry-After"] == "1"
        assert time.monotonic() - began < 20  # the server waits for 50 s
    other.execute("ROLLBACK")
    assert api.post("/topics/orders/messages", once).status_code == 200


@pytest.mark.parametrize(("pause", "tried"), [(0.0, True), (60.0, False)])
def test_only_a_connection_that_was_unused_is_tried_before_a_request(
    api: Api,
    make_token: MakeToken,
    transactional_db: None,
    ems_settings: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    pause: float,
    tried: bool,
) -> None:
    """Each try is a statement."""
    ems_settings(HTTP_THREADS=1)
    api.token, tries = make_token("send:orders"), list[str]()

    def is_usable(connection: BaseDatabaseWrapper) -> bool:
        tries.append(threading.current_thread().name)
        return True

    monkeypatch.setattr(type(connections["default"]), "is_usable", is_usable)
    monkeypatch.setattr(threads, "UNUSED_SECONDS", pause)
    for number in range(3):
        assert api.post("/topics/orders/messages", {"body": number}).status_code == 201
    assert any(name.startswith("ems-http") for name in tries) == tried
