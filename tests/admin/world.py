"""Makes a few rows in every table, by EMS itself where possible."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.utils import timezone

from streams import consumer, send
from streams.consume import registry
from streams.models import (
    ApiToken,
    CheckEndpoint,
    Consumer,
    ConsumerGroup,
    DeadMessage,
    Delivery,
    HeldKey,
    KeyBucket,
    KeyEntry,
    LetterEdit,
    Message,
    Move,
    PreparedRow,
    RateBucket,
    Reader,
    RetryMessage,
    Rewind,
    Step,
    StressRun,
    SystemConfig,
    UtcNow,
)
from streams.operate.redrives import begin
from streams.operate.tokens import issue, right_of
from streams.testing import drain

XSS = "<script>alert(1)</script>"
HOUR = timedelta(hours=1)
SECRET = "the-body-of-the-message"


@dataclass(frozen=True)
class World:
    """Five orders: all mailed, three of them dead for billing, two to be tried again by slow."""

    mail: ConsumerGroup
    billing: ConsumerGroup
    slow: ConsumerGroup

    @property
    def message(self) -> Message:
        return Message.objects.get(offset=0)

    @property
    def letter(self) -> DeadMessage:
        return DeadMessage.objects.get(offset=0)

    def object_of(self, model: Any) -> Any:
        row = model._default_manager.order_by("pk").first()
        assert row is not None, f"the world has no {model.__name__}"
        return row


_made: list[tuple[datetime, World, dict[Any, Any], list[list[Any]]]] = []


def make_world() -> World:
    """Needs an empty registry: the fixture clean_registry.

    The first one is made by EMS. Those after it are copies of its rows, which takes less time.
    """
    if not _made:
        made = _make_world()
        models = [*apps.get_app_config("ems").get_models()]
        rows = [found for model in models if (found := list(model._base_manager.all()))]
        _made.append((timezone.now(), made, dict(registry._registered), rows))
        return made
    made_at, made, registered, rows = _made[0]
    registry._registered.update(registered)
    since = timezone.now() - made_at
    with connection.constraint_checks_disabled():
        for found in rows:
            type(found[0])._base_manager.bulk_create(_moved(row, since) for row in found)
    return deepcopy(made)


def _moved(row: Any, by: timedelta) -> Any:
    copied = deepcopy(row)
    for field in row._meta.concrete_fields:
        if isinstance(value := getattr(row, field.attname), datetime):
            setattr(copied, field.attname, value + by)
    return copied


def _make_world() -> World:
    @consumer("orders", group="mail")
    def mail(message):
        pass

    @consumer("orders", group="billing", max_retries=0)
    def bill(message):
        if message.offset < 3:
            raise ValueError(f"no account for {XSS}")

    @consumer("orders", group="slow")
    def slow(message):
        if message.offset >= 3:
            raise TimeoutError("the bank does not answer")

    bodies = [{"note": f"{SECRET} {XSS}"}, {"n": 1}, "text", b"\x00\xff", {"n": 4}]
    for number, body in enumerate(bodies):
        send("orders", body, key=f"key-{number}", tag="web", headers={"trace": XSS})
    Message.objects.update(tag=XSS[:20])  # of a time when every tag was taken
    drain()
    send("orders", "later", delay=timedelta(days=1), dedup_key="later")
    groups = {group.name: group for group in ConsumerGroup.objects.all()}
    Consumer.objects.create(
        client_id="10.0.0.1@7@abc", group=groups["mail"], lease_until=UtcNow(HOUR)
    )
    place = {"group": groups["mail"], "partition": Message.objects.get(offset=0).partition}
    Delivery.objects.create(
        **place,
        first_offset=4,
        last_offset=4,
        progress=4,
        client_id="10.0.0.1@7@abc",
        thread="mail-0",
        token="secret-token",
        deadline=timezone.now() + timedelta(minutes=1),
    )
    SystemConfig.objects.create(name="consumerBatchSize", value=20)
    letter = DeadMessage.objects.order_by("pk")[0]
    LetterEdit.objects.create(
        letter=letter, group=letter.group, who="ann", body=SECRET.encode(), body_type="text", size=9
    )
    PreparedRow.objects.create(
        biz="shop",
        biz_key="A7",
        topic="orders",
        body=SECRET.encode(),
        body_type="text",
        size=23,
        digest=b"0" * 32,
        producer="p",
        checker="shop.order",
        next_at=UtcNow(HOUR),
        context={"note": XSS},
        last_error=XSS,
    )
    CheckEndpoint.objects.create(name="shop", url="https://example.com/x", secret="s3cret-of-it")
    issue(ApiToken(name="shop", created_by="ann"), [right_of("send:orders")], "default")
    row = begin([groups["billing"]], "default", rate=1, who="ann")
    assert row.stop()
    of_partition = {"partition": place["partition"]}
    KeyEntry.objects.create(**of_partition, key="key-0", offset=0)
    Rewind.objects.create(
        **of_partition,
        epoch=1,
        first_offset=5,
        known_offset=7,
        next_offset=1007,
        noticed_at=UtcNow(timedelta(days=-60)),
        noticed_by=XSS,
    )
    Move.objects.create(
        name="orders", token="t", source="old", target="default", access="read-write", who=XSS
    )
    Reader.objects.create(checkpoint="c", topic=groups["mail"].topic, name=XSS)
    retry = RetryMessage.objects.order_by("pk")[0]
    held = {"group": retry.group, "partition": retry.partition, "head_offset": retry.offset}
    HeldKey.objects.create(**held, key_hash=1, key=XSS)
    RateBucket.objects.create(group=groups["mail"])
    KeyBucket.objects.create(group=groups["mail"], key_hash=1)
    StressRun.objects.create(load={"messages": 10}, error=XSS, who=XSS)
    run_steps()
    assert (DeadMessage.objects.count(), RetryMessage.objects.count()) == (3, 2)
    return World(groups["mail"], groups["billing"], groups["slow"])


def run_steps() -> None:
    """Record that a process sequences and sweeps during the whole test."""
    for name in ("sequence", "sweep"):
        Step.objects.update_or_create(name=name, defaults={"last_run_at": UtcNow(HOUR)})


def snapshot() -> dict[str, list[Any]]:
    """Return every row of EMS and of the admin's log."""
    models: list[Any] = [*apps.get_app_config("ems").get_models(), LogEntry]
    return {
        model._meta.db_table: list(model._default_manager.order_by("pk").values_list())
        for model in models
    }
