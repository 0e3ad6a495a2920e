"""Time is the database's UTC clock, wherever the server lives and whoever writes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.apps import apps
from django.db import models

from streams import Reject, consumer, send
from streams.log.sequencer import sequence
from streams.models import IMMEDIATE, Delivery, Message
from streams.steps.sweep import sweep_if_due
from tests.consuming import Process

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]


def instants() -> dict[str, datetime]:
    """Everything that is a time in EMS's tables, save the constant that means "at once"."""
    found = {}
    for model in apps.get_app_config("ems").get_models():
        fields = [f.name for f in model._meta.get_fields() if isinstance(f, models.DateTimeField)]
        for row in model._default_manager.values("pk", *fields):
            for name in fields:
                if row[name] not in (None, IMMEDIATE):
                    found[f"{model.__name__} {row['pk']}.{name}"] = row[name]
    return found


def test_every_time_that_is_written_is_utc() -> None:
    @consumer("orders", group="mail", max_retries=1)
    def handle(message):
        if message.body == "fails":
            raise ValueError
        if message.body == "odd":
            raise Reject("odd")

    process = Process("mail")
    for body in ("good", "fails", "odd"):
        send("orders", body)
    send("orders", "later", delay=60)
    process.run_until_idle()
    process.heartbeat.step()
    sweep_if_due("default")
    written = instants()
    names = {name.split()[0] for name in written}
    assert {"Message", "Delivery", "RetryMessage", "DeadMessage", "Consumer", "Step"} <= names
    now = datetime.now(UTC)
    off = {name: at for name, at in written.items() if abs(at - now) > timedelta(minutes=10)}
    assert not off, "\n".join(f"{name}: {at}" for name, at in off.items())


def test_a_delayed_message_is_not_early_and_a_live_delivery_not_expired() -> None:
    consumer("orders", group="mail")(lambda message: None)
    process = Process("mail")
    send("orders", "later", delay=60)
    send("orders", "later", deliver_at=datetime.now(UTC) + timedelta(minutes=1))
    send("orders", "now")
    assert sequence("default").sequenced == 1
    assert Message.objects.inbox().count() == 2
    limits = process.feed.limits()
    assert limits is not None
    assert process.turn._turns.claim(limits.batch, limits.consume_timeout) is not None
    assert not Delivery.objects.expired().exists()
