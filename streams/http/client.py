"""Calls the HTTP API from any Python program: the standard library only, and no Django.

It may be used in a service that does not have EMS: copy this file.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import random
import selectors
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

# Seconds: between two records of what is done, and the longest pause while the server is away.
CHECKPOINT_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
# Characters of a reason that the server takes.
LONGEST_REASON = 10_000
# How much longer than a hold a request may take.
MARGIN_SECONDS = 10.0


class ApiError(Exception):
    """The server refuses the request; ``code`` says why, as the page of errors has it."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status, self.code, self.detail = status, code, detail


class LeaseLost(ApiError):
    """Somebody else has the delivery: drop your result."""


class Unavailable(Exception):
    """There is no answer, or the server is too busy: the request may or may not be done."""


class Retry(Exception):
    """Raise this in a handler to see the message again, after ``delay`` seconds."""

    def __init__(self, reason: str = "", *, delay: float | None = None) -> None:
        super().__init__(reason)
        self.delay = None if delay is None else float(delay)


class Reject(Exception):
    """Raise this in a handler for a message that can never be handled."""


@dataclass(frozen=True)
class Message:
    """One message. Topic, partition and offset together name it: use them as its key."""

    topic: str
    partition: int
    offset: int
    attempt: int
    message_id: int
    key: str | None
    tag: str
    headers: Mapping[str, str]
    body: Any
    body_type: str
    producer: str
    created_at: str
    sequenced_at: str | None


@dataclass(frozen=True)
class Delivery:
    """Messages that this client is to handle before ``deadline``."""

    receipt: str
    partition: int
    attempt: int
    kind: str
    deadline: str
    messages: tuple[Message, ...]


class Client:
    """A client of the API at ``url``, such as ``https://shop.example/ems``; threads may share it.

    ``timeout``: seconds until a request without an answer is given up; a hold is added to it.
    """

    def __init__(self, url: str, token: str, *, timeout: float = MARGIN_SECONDS) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError(f"this is not a URL of an API: {url!r}")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._host, self._path = parts.netloc, parts.path.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._timeout = timeout
        self._of_thread = threading.local()
        self._all: set[http.client.HTTPConnection] = set()

    def close(self) -> None:
        """Close the connections of all threads; a later call opens another."""
        while self._all:
            self._all.pop().close()

    # -- producing --

    def send(self, topic: str, body: Any = None, **options: Any) -> dict[str, Any]:
        """Send a message; ``options`` are the fields of the API, such as key, tag, dedup_key.

        Raises Unavailable if nobody knows whether it is sent: repeat it with the same dedup_key.
        """
        if isinstance(body, bytes):
            options |= {"body_type": "bytes"}
            body = base64.b64encode(body).decode()
        sent: dict[str, Any] = self.call(
            "POST", f"/v1/topics/{_part(topic)}/messages", {"body": body, **options}
        )
        return sent

    # -- consuming --

    def make_group(self, topic: str, group: str, **options: Any) -> dict[str, Any]:
        """Make a consumer group, unless it is there; ``options`` are start, ordered, …"""
        made: dict[str, Any] = self.call("PUT", _group(topic, group), options)
        return made

    def pull(
        self, topic: str, group: str, *, client: str, hold: float = 0.0, **options: Any
    ) -> list[Delivery]:
        """Return what is to be handled; wait at most ``hold`` seconds, if there is nothing yet.

        ``options`` are batch, timeout and request_id. A pull that failed may be repeated with the
        same request_id: it gets what the first one got.
        """
        asked = {"client": client, "hold": hold, **options}
        answer = self.call("POST", f"{_group(topic, group)}/pull", asked, wait=hold)
        if not answer["deliveries"] and answer.get("retry_after"):
            time.sleep(min(hold, answer["retry_after"]))
        return [_delivery(topic, one) for one in answer["deliveries"]]

    def ack(self, receipt: str, results: Iterable[Mapping[str, Any]]) -> int:
        """Record results, from the first open message on; return how many are open then.

        It may be repeated. Raises LeaseLost.
        """
        given = {"receipt": receipt, "results": list(results)}
        return int(self.call("POST", "/v1/deliveries/ack", given)["open"])

    def extend(self, receipt: str, timeout: float) -> str:
        """Hold a delivery for ``timeout`` seconds from now; return its deadline."""
        given = {"receipt": receipt, "timeout": timeout}
        return str(self.call("POST", "/v1/deliveries/extend", given)["deadline"])

    def release(self, receipt: str) -> None:
        """Give back what is open of a delivery; no attempt is spent."""
        self.call("POST", "/v1/deliveries/release", {"receipt": receipt})

    def leave(self, topic: str, group: str, client: str) -> None:
        """Give back all that ``client`` holds."""
        self.call("DELETE", f"{_group(topic, group)}/clients/{_part(client)}")

    def consume(
        self,
        topic: str,
        group: str,
        handle: Callable[[Message], object],
        *,
        client: str | None = None,
        hold: float = 20.0,
        stopped: Callable[[], bool] = lambda: False,
        **options: Any,
    ) -> None:
        """Pull and call ``handle`` with each message, until ``stopped()``.

        A handler may raise Retry or Reject; anything else that it raises is a failed attempt. While
        the server is away it waits. ``options`` are batch and timeout of the pulls.
        """
        client = client or f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        request, pause = _request_id(), 0.0
        while not stopped():
            try:
                pulled = self.pull(
                    topic, group, client=client, hold=hold, request_id=request, **options
                )
                for delivery in pulled:
                    with suppress(LeaseLost):  # the others may be held still
                        self._handle(delivery, handle, stopped)
                request, pause = _request_id(), 0.0
            except Unavailable:
                pause = min(LONGEST_PAUSE_SECONDS, 2 * pause or 0.1)
                time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
        self._leave_quietly(topic, group, client)

    def _handle(
        self, delivery: Delivery, handle: Callable[[Message], object], stopped: Callable[[], bool]
    ) -> None:
        results: list[dict[str, Any]] = []
        recorded = time.monotonic()
        for message in delivery.messages:
            if stopped():
                break
            result = _result(handle, message)
            results.append(result)
            failed = "outcome" in result
            if failed or time.monotonic() > recorded + CHECKPOINT_SECONDS:
                left = self._ack_again(delivery.receipt, results)
                results, recorded = [], time.monotonic()
                if not left:  # of an ordered group: the first failure ends the delivery
                    return
        if results and not self._ack_again(delivery.receipt, results):
            return
        self.release(delivery.receipt)

    def _ack_again(self, receipt: str, results: list[dict[str, Any]]) -> int:
        """Record results, again while the server is away: what is recorded stays as it is.

        Where the server refuses what a handler has said, such as its delay, the message has failed.
        """
        pause = 0.1
        while True:
            try:
                return self.ack(receipt, results)
            except ApiError as error:
                if error.status != 422 or results[-1].get("outcome") not in ("retry", "reject"):
                    raise
                failed = {"offset": results[-1]["offset"], "outcome": "fail"}
                results = [*results[:-1], {**failed, "reason": _reason(error)}]
            except Unavailable:
                if pause > LONGEST_PAUSE_SECONDS:
                    raise
                time.sleep(pause)
                pause *= 2

    def _leave_quietly(self, topic: str, group: str, client: str) -> None:
        with suppress(ApiError, Unavailable):  # what it holds expires
            self.leave(topic, group, client)

    # -- one request --

    def call(self, method: str, path: str, given: Any = None, *, wait: float = 0.0) -> Any:
        """Make a request, and return what is answered; raises ApiError, Unavailable."""
        body = None if given is None else json.dumps(given).encode()
        try:
            status, content = self._answer(method, path, body, self._timeout + wait)
        except (OSError, http.client.HTTPException) as error:
            self._close()
            raise Unavailable(f"{method} {path}: {error!r}") from error
        if status < 300:
            return json.loads(content) if content else None
        return _refused(status, content)

    def _answer(
        self, method: str, path: str, body: bytes | None, timeout: float
    ) -> tuple[int, bytes]:
        connection = getattr(self._of_thread, "connection", None)
        if connection is None or _is_dropped(connection):
            self._close()
            connection = self._connection()
        connection.timeout = timeout
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        connection.request(method, self._path + path, body, self._headers)
        response = connection.getresponse()
        return response.status, response.read()

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            made: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, context=self._tls
            )
        else:
            made = http.client.HTTPConnection(self._host)
        self._of_thread.connection = made
        self._all.add(made)
        return made

    def _close(self) -> None:
        connection = getattr(self._of_thread, "connection", None)
        if connection is not None:
            connection.close()
            self._all.discard(connection)
            self._of_thread.connection = None


def _is_dropped(connection: http.client.HTTPConnection) -> bool:
    """Tell whether the server has closed a connection that was silent for a while."""
    if connection.sock is None:
        return False
    with selectors.DefaultSelector() as selector:
        selector.register(connection.sock, selectors.EVENT_READ)
        return bool(selector.select(0))


def _refused(status: int, content: bytes) -> Any:
    try:
        problem = json.loads(content)
        code, detail = problem["code"], problem["detail"]
    except (ValueError, KeyError, TypeError):  # of a proxy on the way
        code, detail = "unknown", content[:200].decode(errors="replace")
    if status == 429 or status >= 500:
        raise Unavailable(f"{status} {code}: {detail}")
    if code == "lease_lost":
        raise LeaseLost(status, code, detail)
    raise ApiError(status, code, detail)


def _result(handle: Callable[[Message], object], message: Message) -> dict[str, Any]:
    result: dict[str, Any] = {"offset": message.offset}
    try:
        handle(message)
    except Retry as error:
        result |= {"outcome": "retry", "reason": _reason(error), "delay": error.delay}
    except Reject as error:
        result |= {"outcome": "reject", "reason": _reason(error)}
    except Exception as error:  # noqa: BLE001 - whatever a handler raises
        reason = f"{type(error).__name__}: {_reason(error)}"
        result |= {"outcome": "fail", "reason": reason[:LONGEST_REASON]}
    return result


def _reason(error: Exception) -> str:
    """Return what the error says, as the server takes it: no longer, and in UTF-8."""
    try:
        text = str(error)
    except Exception as broken:  # noqa: BLE001 - whatever __str__ of a project raises
        text = f"its text cannot be had: {type(broken).__name__}"
    return text.encode(errors="backslashreplace").decode()[:LONGEST_REASON]


def _delivery(topic: str, given: Mapping[str, Any]) -> Delivery:
    partition, attempt = given["partition"], given["attempt"]
    messages = tuple(_message(topic, partition, attempt, one) for one in given["messages"])
    return Delivery(
        given["receipt"], partition, attempt, given["kind"], given["deadline"], messages
    )


def _message(topic: str, partition: int, attempt: int, given: Mapping[str, Any]) -> Message:
    body = given["body"]
    if given["body_type"] == "bytes" and body is not None:
        body = base64.b64decode(body)
    names = ("message_id", "key", "tag", "headers", "body_type", "producer")
    named = {name: given[name] for name in (*names, "created_at", "sequenced_at")}
    return Message(topic, partition, given["offset"], attempt, body=body, **named)


def _group(topic: str, group: str) -> str:
    return f"/v1/topics/{_part(topic)}/groups/{_part(group)}"


def _part(name: str) -> str:
    return quote(name, safe="")


def _request_id() -> str:
    return uuid.uuid4().hex
