"""Defines tokens and a client of the HTTP API.

Where a test has the fixture ``transactional_db``, requests run as they do in a server, on threads
with connections of their own. In others they run on the test's connection, which is rolled back.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.test import Client

from streams.database import remembered
from streams.http import access, rates, threads
from streams.http.pulling import poller, waiting
from streams.models import ApiToken
from streams.operate.tokens import issue, right_of
from tests.http.servers import Web
from tests.processes import Spawn
from tests.servers import free_port

MakeToken = Callable[..., str]


@pytest.fixture(autouse=True)
def _where_it_runs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests of a test that is rolled back see what the test has written."""
    if "transactional_db" in request.fixturenames:
        return

    async def here(work: Any, *args: Any, **kwargs: Any) -> Any:
        return await sync_to_async(work, thread_sensitive=True)(*args, **kwargs)

    monkeypatch.setattr(threads, "on_a_thread", here)
    monkeypatch.setattr(threads, "for_a_probe", here)
    monkeypatch.setattr(access, "on_a_thread", here)


@pytest.fixture(autouse=True)
def _nothing_is_known() -> Iterator[None]:
    """Let each test begin as a new process does, and close the connections of its threads."""
    access._known.clear()
    rates._tokens.clear()
    yield
    for name in ("_pool", "_probe"):
        _close(getattr(threads, name))
        setattr(threads, name, None)


@pytest.fixture(autouse=True)
def _no_poller_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let no thread of one test look, sequence and sweep in the next, which it does not know."""
    if "transactional_db" in request.fixturenames:
        request.getfixturevalue("transactional_db")  # the tables are emptied after this
    yield
    poller.stop()


def _close(pool: ThreadPoolExecutor | None) -> None:
    if pool is None:
        return
    workers = pool._max_workers
    together = threading.Barrier(workers)

    def close() -> None:
        together.wait(20)  # so that each thread comes once
        connections.close_all()

    for closed in [pool.submit(close) for _ in range(workers)]:
        closed.result()
    pool.shutdown()


@pytest.fixture
def make_token(db: None) -> MakeToken:
    """Return a new token: ``make_token("send:orders", "look", name="shop")``."""

    def make(*rights: str, name: str = "test", using: str = "default", **fields: Any) -> str:
        token = ApiToken(name=name, created_by="tests", **fields)
        return issue(token, [right_of(text) for text in rights], using)

    return make


class Api:
    """Calls the API: ``api.post("/topics/orders/messages", {"body": 1}, token=…)``.

    Paths are below ``/ems/v1``. An answer has ``.status_code`` and ``.json()``.
    """

    def __init__(self, token: str | None = None) -> None:
        self.client = Client(raise_request_exception=False)
        self.token = token

    def call(
        self, method: str, path: str, data: Any = None, *, token: str | None = None, **headers: str
    ) -> Any:
        token = token or self.token
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            given.setdefault("Authorization", f"Bearer {token}")
        return self.client.generic(
            method,
            path if path.startswith("/ems/") else f"/ems/v1{path}",
            data if isinstance(data, bytes) else b"" if data is None else _json(data),
            "application/json",
            secure=True,
            headers=given,
        )

    def get(self, path: str, **options: Any) -> Any:
        return self.call("GET", path, **options)

    def post(self, path: str, data: Any = None, **options: Any) -> Any:
        return self.call("POST", path, data, **options)

    def put(self, path: str, data: Any = None, **options: Any) -> Any:
        return self.call("PUT", path, data, **options)

    def patch(self, path: str, data: Any = None, **options: Any) -> Any:
        return self.call("PATCH", path, data, **options)

    def delete(self, path: str, data: Any = None, **options: Any) -> Any:
        return self.call("DELETE", path, data, **options)


def _json(data: Any) -> bytes:
    return json.dumps(data).encode()


@pytest.fixture
def api(db: None) -> Api:
    """Return a client without a token: pass one to each call, or set ``api.token``."""
    return Api()


@pytest.fixture
def web(
    spawn: Spawn, make_token: MakeToken, ems_settings: Callable[..., None]
) -> Iterator[Callable[..., Web]]:
    """Start a web server: ``web("uvicorn", "consume:*/*")``; it ends with the test."""
    ems_settings(HTTP_INSECURE=True)
    started: list[Web] = []

    def start(kind: str = "uvicorn", *rights: str, **fields: Any) -> Web:
        token = make_token(*(rights or ("send:*", "consume:*/*", "read:*", "body:*")), **fields)
        started.append(Web(spawn, kind, free_port(), token).start())
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture(autouse=True)
def _nobody_pulls() -> Iterator[None]:
    """End the thread that looks for what pulls wait for."""
    remembered.forget()
    waiting._waiting.clear()
    yield
    poller.stop()
