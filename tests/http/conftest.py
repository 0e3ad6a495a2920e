"""Defines tokens and a client of the HTTP API.

Where a test has the fixture ``transactional_db``, requests run as they do in a server, on threads
with connections of their own. In others they run on the test's connection, which is rolled back.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, connections
from django.http import HttpResponse
from django.test import Client

from streams.database import remembered
from streams.http import access, rates, threads
from streams.http.asgi import refusing_early
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
    end_threads()


def end_threads() -> None:
    """End the threads of requests, with their connections; the next request makes new ones."""
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


class BareApi(Api):
    """Calls the API as a server of ASGI does, where ``asgi.py`` has refusing_early()."""

    def call(
        self, method: str, path: str, data: Any = None, *, token: str | None = None, **headers: str
    ) -> Any:
        body = data if isinstance(data, bytes) else b"" if data is None else _json(data)
        scope = self.scope(method, path, body, token=token, **headers)
        ends = (request_started, request_finished)
        for signal in ends:  # as Django's test client: they would close the test's connection
            signal.disconnect(close_old_connections)
        try:
            return async_to_sync(asked)(refusing_early(ASGIHandler()), scope, body)
        finally:
            for signal in ends:
                signal.connect(close_old_connections)

    def scope(
        self, method: str, path: str, body: bytes, *, token: str | None = None, **headers: str
    ) -> dict[str, Any]:
        """Return what a server tells an application of a request."""
        given = {name.replace("_", "-").lower(): value for name, value in headers.items()}
        if token := token or self.token:
            given.setdefault("authorization", f"Bearer {token}")
        given |= {"host": "testserver", "content-length": str(len(body))}
        url = urlsplit(path if path.startswith("/ems/") else f"/ems/v1{path}")
        return {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "https",
            "path": unquote(url.path),
            "query_string": url.query.encode(),
            "headers": [
                (name.encode(), value.encode("latin-1", "replace")) for name, value in given.items()
            ],
            "client": ["127.0.0.1", 1],
        }


async def asked(application: Any, scope: Any, body: bytes) -> HttpResponse:
    """Return what an application answers to a request whose client waits for that."""
    parts: list[Any] = [{"type": "http.request", "body": body}]
    sent: list[Any] = []

    async def receive() -> Any:
        if parts:
            return parts.pop()
        return await asyncio.get_running_loop().create_future()

    async def send(message: Any) -> None:
        sent.append(message)

    await application(scope, receive, send)
    start, *rest = sent
    answer = HttpResponse(b"".join(one["body"] for one in rest), status=start["status"])
    del answer["Content-Type"]
    for name, value in start["headers"]:
        answer[name.decode()] = value.decode("latin-1")
    answer.json = lambda: json.loads(answer.content)  # type: ignore[attr-defined]
    return answer


# What calls the hot routes is tried in both ways in which a project may serve them.
BOTH_WAYS = {
    *("test_acks", "test_bodies", "test_busy", "test_problems", "test_produce", "test_pulling"),
    *("test_repeated_pulls", "test_shards", "test_tokens", "test_tracing"),
}
# In the others what differs is what answers, which these show.
OFTEN_IN_BOTH_WAYS = {"test_acks", "test_problems", "test_produce"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    module = metafunc.module.__name__.rpartition(".")[2]
    if module in BOTH_WAYS and "api" in metafunc.fixturenames:
        often = module in OFTEN_IN_BOTH_WAYS
        bare = pytest.param("bare", marks=[] if often else [pytest.mark.exhaustive])
        metafunc.parametrize("api", ["django", bare], indirect=True)


@pytest.fixture
def api(db: None, request: pytest.FixtureRequest) -> Api:
    """Return a client without a token: pass one to each call, or set ``api.token``."""
    return BareApi() if getattr(request, "param", "") == "bare" else Api()


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
