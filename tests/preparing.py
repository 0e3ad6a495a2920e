"""Prepares messages for tests, and answers for them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from unittest.mock import patch

from django.db import OperationalError, connections

from streams import Decision, Prepared, checkback, prepare
from streams.models import CheckEndpoint, Message, PreparedRow
from streams.testing import advance

CHECKER = "shop.order"
MINUTE = timedelta(minutes=1)


def answering(*answers: Any, name: str = CHECKER) -> list[Any]:
    """Register a check-back that gives one answer after the other, the last one again and again.

    An exception is raised. Returns the list of what it is asked.
    """
    left, asked = list(answers), []

    def answer(message: Any) -> Decision:
        asked.append(message)
        given = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(given, BaseException):
            raise given
        return given  # type: ignore[no-any-return]

    checkback(name)(answer)
    return asked


def held(biz_key: Any = "A7", body: Any = None, **more: Any) -> Prepared:
    """Prepare a message of the business "shop" for the topic "orders"."""
    given = {"biz": "shop", "checker": CHECKER, **more}
    body = {"number": biz_key} if body is None else body
    return prepare(given.pop("topic", "orders"), body, biz_key=biz_key, **given)


@contextmanager
def away(alias: str) -> Iterator[None]:
    """Let the server of this database refuse connections, in all threads of this process."""
    kind: Any = type(connections[alias])
    real = kind.ensure_connection

    def refused(self: Any) -> None:
        if self.alias == alias:
            raise OperationalError(2003, "Can't connect to server")
        real(self)

    with patch.object(kind, "ensure_connection", refused):
        yield


def row(key: str = "A7") -> PreparedRow:
    return PreparedRow.objects.get(biz_key=key)


def sent_keys() -> list[str]:
    """Return the keys of the prepared messages that are in ems_msg, in the order of their ids."""
    headers = Message.objects.order_by("pk").values_list("headers", flat=True)
    return [
        one["ems-biz-key"]
        for one in headers
        if one and "ems-biz-key" in one and "ems-action" not in one
    ]


def pass_time(minutes: float) -> None:
    advance(timedelta(minutes=minutes))


class Answers:
    """Runs an HTTP server for the check-back: ``answer`` is what each request gets."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.url = f"http://127.0.0.1:{server.server_address[1]}/check"
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.status = 200
        self.headers: dict[str, str] = {}
        self.body: bytes | Callable[[], Iterator[bytes]] = b"{}"
        # By the key of the message: the status and the body of another answer.
        self.unlike: dict[str, tuple[int, bytes | Callable[[], Iterator[bytes]]]] = {}

    def say(self, answer: Any, status: int = 200, **headers: str) -> None:
        self.status, self.headers = status, headers
        self.body = answer if isinstance(answer, bytes) or callable(answer) else _json(answer)


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


@contextmanager
def answers() -> Iterator[Answers]:
    """Start such a server; it is stopped at the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            state.asked.append((self.command, self.path, dict(self.headers), body))
            status, said = state.status, state.body
            if body and state.unlike:
                status, said = state.unlike.get(json.loads(body)["biz_key"], (status, said))
            self.send_response(status)
            for name, value in state.headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for part in said() if callable(said) else [said]:
                    self.wfile.write(part)
            except OSError:  # the reader has had enough
                self.close_connection = True

        do_GET = do_POST = answer  # noqa: N815 - names of http.server

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state = Answers(server)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def endpoint(url: str, **more: Any) -> CheckEndpoint:
    """Make an endpoint named CHECKER that may be on this host."""
    given = {"name": CHECKER, "allow_private": True, "timeout_seconds": 2, **more}
    return CheckEndpoint.objects.create(url=url, **given)
