"""The Python client outlives what handlers raise and what servers answer; here without a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from streams.http import client as module
from streams.http.client import ApiError, Client, LeaseLost, Message, Reject, Retry, Unavailable

LONG = "x" * 20_000


class Server(Client):
    """Answers one pull, of a delivery of one message for each of ``receipts``."""

    def __init__(self, *receipts: str) -> None:
        super().__init__("http://shop.example", "token")
        self.receipts, self.acked = receipts, list[dict[str, Any]]()
        self.lost: set[str] = set()
        self.most_delay = 1e9
        self.pulls = 0

    def call(self, method: str, path: str, given: Any = None, *, wait: float = 0.0) -> Any:
        if path.endswith("/pull"):
            self.pulls += 1
            found = [_delivery(one) for one in self.receipts] if self.pulls == 1 else []
            return {"deliveries": found, "retry_after": None}
        if path.endswith("/ack"):
            return self._ack(given)
        return None

    def _ack(self, given: Mapping[str, Any]) -> Any:
        if given["receipt"] in self.lost:
            raise LeaseLost(410, "lease_lost", "reset")
        for result in given["results"]:
            reason, delay = result.get("reason", ""), result.get("delay")
            reason.encode()
            if len(reason) > 10_000 or not 0 <= (delay or 0) <= self.most_delay:
                raise ApiError(422, "invalid", "no such delay")
            self.acked.append({"receipt": given["receipt"], **result})
        return {"open": 0}

    def run(self, handle: Callable[[Message], object]) -> list[dict[str, Any]]:
        self.consume("orders", "mail", handle, stopped=lambda: self.pulls > 1)
        return self.acked


def _delivery(receipt: str) -> dict[str, Any]:
    texts = dict.fromkeys(("key", "tag", "producer", "created_at", "sequenced_at"), "")
    message = {"offset": 0, "message_id": 1, "headers": {}, "body": 1, "body_type": "json", **texts}
    place = {"partition": 0, "attempt": 1, "kind": "new", "deadline": ""}
    return {"receipt": receipt, **place, "messages": [message]}


class Broken(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("make", "outcome", "reason"),
    [
        (lambda: Reject(LONG), "reject", LONG[:10_000]),
        (lambda: Retry(LONG, delay=1), "retry", LONG[:10_000]),
        (lambda: OSError(LONG), "fail", f"OSError: {LONG}"[:10_000]),
        (lambda: OSError("a\udcff"), "fail", "OSError: a\\udcff"),
        (Broken, "fail", "Broken: its text cannot be had: ZeroDivisionError"),
        (lambda: Retry("no", delay=1e10), "fail", "422 invalid: no such delay"),
        (lambda: Retry("no", delay=-1), "fail", "422 invalid: no such delay"),
    ],
)
def test_whatever_a_handler_raises_is_recorded(
    make: Callable[[], Exception], outcome: str, reason: str
) -> None:
    def handle(message: Message) -> None:
        raise make()

    (acked,) = Server("one").run(handle)
    assert (acked["outcome"], acked["reason"]) == (outcome, reason)


def test_a_delay_that_is_no_number_is_a_failure_of_the_handler() -> None:
    def handle(message: Message) -> None:
        raise Retry("no", delay="soon")  # type: ignore[arg-type]

    (acked,) = Server("one").run(handle)
    assert acked["outcome"] == "fail"
    assert "ValueError" in acked["reason"]


def test_a_delivery_that_is_lost_leaves_the_others_of_the_answer() -> None:
    """Each is of another partition, and only one was reset."""
    server = Server("one", "two", "three")
    server.lost = {"one"}
    assert [one["receipt"] for one in server.run(lambda message: None)] == ["two", "three"]


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_server_that_fails_is_asked_again(status: int) -> None:
    with pytest.raises(Unavailable):
        module._refused(status, b"")
