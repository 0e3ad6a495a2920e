"""The code of docs/guides/extending.md does what the page says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import django
import pytest
from django.core import mail

from streams import Reject, consumer, send, signals
from streams.consume.outcome.backoff import RetryPolicy
from streams.consume.registry import find
from streams.operate.topics import create
from streams.testing import drain
from tests.docs.documents import DOCS, blocks, files

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

EXTENDING = DOCS / "guides" / "extending.md"


def run(file: str) -> dict[str, Any]:
    """The names of the block that is this file."""
    names: dict[str, Any] = {"__name__": file}
    exec(files(EXTENDING)[file], names)  # noqa: S102 - the block is ours
    return names


def test_no_example_is_long() -> None:
    assert max(len(block.splitlines()) for block in blocks(EXTENDING, "python")) < 30


def policy(group: str) -> RetryPolicy:
    registration = find("orders", group)
    assert registration is not None
    assert registration.retry is not None
    return registration.retry


def test_the_three_ways_to_say_a_retry_policy() -> None:
    names = run("shop/consumers.py")
    bank, search, mails = map(policy, ("bank", "search", "mail"))
    error = type("Answer", (Exception,), {"status": 404})()
    assert bank.delay_after(1, error) is None
    assert bank.delay_after(1, ValueError()) == timedelta(minutes=1)
    assert names["Exponential"](first=1, factor=2, at_most=timedelta(hours=1)) == search
    last = mails.delay_after(9, ValueError())
    assert last is not None
    assert timedelta(minutes=8) <= last <= timedelta(minutes=12)


def test_the_receiver_mails_a_death(settings: Any) -> None:
    ops = "ops@example.org"
    settings.ADMINS = [ops] if django.VERSION >= (6, 0) else [("Ops", ops)]
    tell = run("shop/alarms.py")["tell"]

    @consumer("orders", group="bank")
    def handle(message):
        raise Reject("no such account")

    try:
        send("orders", 1)
        drain()
    finally:
        signals.message_dead.disconnect(tell)
    (sent,) = mail.outbox
    assert "bank gave up on orders/0@0" in sent.subject
    assert "no such account" in sent.body


def test_the_middleware_knows_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    names = run("shop/middleware.py")
    seen = []
    consumer("orders", group="mail")(lambda message: seen.append(names["request_id"].get()))
    monkeypatch.setattr(
        "streams.consume.middleware.middleware", lambda: (names["with_request_id"],)
    )
    send("orders", 1, headers={"request-id": "r-17"})
    drain()
    assert (seen, names["request_id"].get()) == (["r-17"], "")


def test_the_partitioner_keeps_a_tenant_together(ems_settings: Any, monkeypatch: Any) -> None:
    by_tenant = run("shop/partitions.py")["by_tenant"]
    ems_settings(PARTITIONER="shop.partitions.by_tenant")
    monkeypatch.setattr("streams.produce.partitioning.load", lambda path, setting: by_tenant)
    create("orders", 8, "default")
    places = {
        tenant: {send("orders", 1, key=key, headers={"tenant": tenant}).partition for key in "abcd"}
        for tenant in ("north", "south", "east")
    }
    assert {len(found) for found in places.values()} == {1}
    assert len(set.union(*places.values())) > 1
