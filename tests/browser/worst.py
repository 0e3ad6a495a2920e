"""Writes the worst case: two million behind, one group stuck, one blocked, 5,800 dead letters.

By rows, as five million messages and an hour of samples would have left them; of the messages
only those that the pages read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.utils import timezone

from monitoring.models import (
    Alarm,
    AlarmChannel,
    ErrorClass,
    GroupSample,
    HotKey,
    Latency,
    PartitionSample,
    Position,
    Run,
    Traffic,
)
from monitoring.sample.grain import floor, grain
from streams.database.clock import database_now
from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Message,
    Partition,
    RetryMessage,
    State,
    Step,
    Topic,
    UtcNow,
)

MINUTE = timedelta(minutes=1)
DEAD = 5800
BEHIND = 2_000_000
END = 5_000_000
TRACE = """Traceback (most recent call last):
  File "/srv/shop/payments/consumers.py", line 41, in charge
    receipt = bank.charge(message.body["card"], message.body["amount"])
  File "/srv/shop/payments/bank.py", line 88, in charge
    raise CardDeclined(f"{answer.code}: {answer.text}")
shop.payments.CardDeclined: 51: insufficient funds
"""
# Topic: partitions, messages of its log, messages a second.
TOPICS = {
    "orders": (3, END, 640.0),
    "payments": (2, 1_800_000, 210.0),
    "mails": (1, 920_000, 95.0),
    "invoices": (1, 310_000, 12.0),
    "page-views": (4, 48_000_000, 2400.0),
    "stock": (1, 75_000, 0.4),
}
# Group: topic, messages behind, messages a second that it finishes, consumers, options.
GROUPS: dict[str, tuple[str, int, float, int, dict[str, Any]]] = {
    "billing": ("orders", BEHIND, 3.1, 2, {}),
    "shipping": ("orders", 61_400, 0.0, 1, {"ordered": True}),
    "ledger": ("payments", 340, 208.0, 4, {}),
    "fraud-scores": ("payments", 88_000, 260.0, 6, {}),
    "smtp": ("mails", 12, 95.2, 2, {}),
    "pdf": ("invoices", 5_210, 0.0, 0, {"paused": True}),
    "clicks": ("page-views", 900, 2398.0, 8, {}),
    "replenish": ("stock", 0, 0.4, 1, {}),
}
ERRORS = ("shop.payments.CardDeclined", "shop.payments.BankTimeout", "KeyError")


def make_worst() -> None:
    now = database_now("default")
    logs = {name: _topic(name, *figures) for name, figures in TOPICS.items()}
    groups = {name: _group(name, *figures, logs) for name, figures in GROUPS.items()}
    _samples(now, logs, groups)
    _stuck(groups["billing"])
    _blocked(groups["shipping"])
    _dead(groups["ledger"])
    _retries(groups["ledger"])
    _traced(groups)
    _by_spark(now, logs, groups)
    _alarms(now)
    tick()


def tick() -> None:
    """Record that the steps have run just now."""
    for name in ("sequence", "sweep", "purge", "sample", "alarms", "notifications", "audit"):
        Step.objects.update_or_create(name=name, defaults={"last_run_at": UtcNow()})


def _topic(name: str, partitions: int, end: int, _rate: float) -> list[Partition]:
    topic = Topic.objects.create(name=name)
    first = topic.partitions.get()
    new = [Partition(topic=topic, number=number) for number in range(1, partitions)]
    Partition.objects.bulk_create(new)
    made = [first, *topic.partitions.exclude(pk=first.pk).order_by("number")]
    for number, partition in enumerate(made):
        # The first one has a little more to do.
        share = (1.3 if number == 0 else 1 - 0.3 / max(1, partitions - 1)) / partitions
        partition.next_offset = int(end * (share if partitions > 1 else 1))
        partition.first_offset = partition.next_offset // 5
        partition.last_sequenced_at = UtcNow()
        partition.save()
        _messages(partition, max(partition.first_offset, partition.next_offset - 120), 120, MINUTE)
    return made


def _messages(partition: Partition, first: int, count: int, age: timedelta) -> None:
    Message.objects.bulk_create(
        Message(
            partition=partition,
            offset=offset,
            key=f"customer-{offset * 7919 % 4000}",
            tag="web" if offset % 3 else "app",
            body=b'{"order": %d, "amount": "49.90", "currency": "EUR"}' % offset,
            body_type="json",
            size=700,
            producer="10.0.4.17@2188@MainThread",
            created_at=UtcNow(-age - timedelta(milliseconds=40)),
            sequenced_at=UtcNow(-age),
        )
        for offset in range(first, first + count)
    )


def _group(
    name: str,
    topic: str,
    behind: int,
    _rate: float,
    consumers: int,
    options: dict[str, Any],
    logs: dict[str, list[Partition]],
) -> ConsumerGroup:
    group = ConsumerGroup.objects.create(topic=logs[topic][0].topic, name=name, **options)
    whole = sum(one.next_offset for one in logs[topic])
    for partition in logs[topic]:
        own = int(behind * partition.next_offset / whole)
        at = partition.next_offset - own
        Cursor.objects.create(group=group, partition=partition, next_offset=at)
        if own > 1000:
            age = timedelta(hours=3, minutes=20) if behind > 50_000 else timedelta(minutes=22)
            _messages(partition, at, 1, age)
    Consumer.objects.bulk_create(
        Consumer(
            client_id=f"10.0.4.{20 + n}@{3100 + n}@{name}",
            group=group,
            lease_until=UtcNow(timedelta(hours=6)),
            started_at=UtcNow(-timedelta(hours=31)),
        )
        for n in range(consumers)
    )
    return group


def _samples(now: Any, logs: dict[str, list[Partition]], groups: dict[str, ConsumerGroup]) -> None:
    """A sample of each of the last 180 minutes, but for eight minutes of a deployment."""
    minutes = [floor(now, 1) - n * MINUTE for n in range(180, 0, -1)]
    before = None
    of_logs, of_groups = [], []
    for at in minutes:
        ago = (now - at) / MINUTE
        if 24 <= ago < 32:
            continue
        common = {"minute": at, "taken_at": at + timedelta(seconds=2), "grain": grain(at, before)}
        before = at
        for name, partitions in logs.items():
            gone = TOPICS[name][2] * 60 * _sum(ago)
            whole = sum(one.next_offset for one in partitions)
            of_logs += [
                PartitionSample(
                    **common,
                    partition=one,
                    first_offset=one.first_offset,
                    next_offset=int(one.next_offset * (1 - gone / whole)),
                    inbox=0,
                )
                for one in partitions
            ]
        of_groups += [
            GroupSample(**common, group=group, **_of_group(name, ago, logs))
            for name, group in groups.items()
        ]
    PartitionSample.objects.bulk_create(of_logs, 500)
    GroupSample.objects.bulk_create(of_groups, 500)


def _sum(ago: float) -> float:
    """Return the minutes of mean traffic in the last ``ago`` minutes, which goes up and down."""
    return ago + 0.25 * 17 * (math.cos(0) - math.cos(ago / 17))


def _of_group(name: str, ago: float, logs: dict[str, list[Partition]]) -> dict[str, Any]:
    topic, behind, rate, consumers, _options = GROUPS[name]
    came, went = TOPICS[topic][2] * 60 * _sum(ago), rate * 60 * ago
    end = sum(one.next_offset for one in logs[topic])
    then = max(0.0, behind - came + went) if behind > 1000 else behind * (1 + math.sin(ago / 3)) / 2
    dead = int(DEAD * max(0.0, 1 - ago / 150)) if name == "ledger" else 0
    waiting = int(220 + 90 * math.sin(ago / 9)) if name == "ledger" else 0
    return {
        "behind": int(then),
        "done": int(end - behind - went - (DEAD if name == "ledger" else 0)),
        "open": 0,
        "waiting": waiting,
        "dead": dead,
        "consumers": consumers,
        "age_seconds": max(0.0, 12_000 - 60 * ago) if behind > 50_000 else 2.0,
    }


def _stuck(group: ConsumerGroup) -> None:
    """One call runs for 23 minutes, the other client waits for its turn."""
    clients = group.clients.order_by("client_id")
    for number, cursor in enumerate(group.cursors.order_by("partition__number")[:2]):
        first = cursor.next_offset - 100
        started = UtcNow(-23 * MINUTE) if number == 0 else UtcNow(-timedelta(seconds=41))
        Delivery.objects.create(
            group=group,
            partition=cursor.partition,
            first_offset=first,
            last_offset=first + 99,
            progress=first + 37,
            client_id=clients[number].client_id,
            thread=f"billing-{number}",
            token=f"token-{number}",
            claimed_at=UtcNow(-24 * MINUTE) if number == 0 else UtcNow(-MINUTE),
            started_at=started,
            deadline=UtcNow(7 * MINUTE) if number == 0 else UtcNow(timedelta(seconds=19)),
        )


def _blocked(group: ConsumerGroup) -> None:
    cursor = group.cursors.order_by("partition__number")[0]
    Cursor.objects.filter(pk=cursor.pk).update(attempt=7, blocked_until=UtcNow(4 * MINUTE))


def _dead(group: ConsumerGroup) -> None:
    log = group.topic.partitions.order_by("number")[0]
    DeadMessage.objects.bulk_create(
        (
            DeadMessage(
                topic=group.topic,
                group=group,
                partition=log,
                offset=log.next_offset - DEAD + n - 200,
                message_id=n + 1,
                body=b'{"card": "\\u2026 4711", "amount": "49.90", "order": %d}' % n,
                body_type="json",
                size=52,
                key=f"customer-{n * 7919 % 4000}",
                producer="10.0.4.17@2188@MainThread",
                sent_at=UtcNow(-3 * 60 * MINUTE),
                attempts=17,
                error_class=ERRORS[0 if n % 10 < 7 else 1 if n % 10 < 9 else 2],
                error=("51: insufficient funds", "no answer within 30 s", "'iban'")[
                    0 if n % 10 < 7 else 1 if n % 10 < 9 else 2
                ],
                traceback=TRACE,
                died_at=UtcNow(-(DEAD - n) * MINUTE * 150 / DEAD),
            )
            for n in range(DEAD)
        ),
        500,
    )


def _retries(group: ConsumerGroup) -> None:
    log = group.topic.partitions.order_by("number")[0]
    RetryMessage.objects.bulk_create(
        RetryMessage(
            group=group,
            partition=log,
            offset=log.next_offset - 400 + n,
            attempt=2 + n % 9,
            due_at=UtcNow(timedelta(seconds=7 * n)),
            last_error=f"{ERRORS[1]}: no answer within 30 s",
        )
        for n in range(310)
    )


def _traced(groups: dict[str, ConsumerGroup]) -> None:
    """One payment that ledger has tried three times, and fraud-scores has done."""
    log = groups["ledger"].topic.partitions.order_by("number")[1]
    offset = groups["fraud-scores"].cursors.get(partition=log).next_offset - 30
    _messages(log, offset - 9, 10, timedelta(seconds=61))
    RetryMessage.objects.create(
        group=groups["ledger"],
        partition=log,
        offset=offset,
        attempt=4,
        due_at=UtcNow(MINUTE),
        last_error=f"{ERRORS[1]}: no answer within 30 s",
    )
    for name, attempt, claimed, started, ended, state in (
        ("ledger", 1, 60, 59, 55, State.RETRY),
        ("ledger", 2, 44, 43, 35, State.RETRY),
        ("ledger", 3, 14, 13, 5, State.RETRY),
        ("fraud-scores", 1, 58, 50, 46, State.DONE),
    ):
        failed = state == State.RETRY
        Delivery.objects.create(
            group=groups[name],
            partition=log,
            first_offset=offset,
            last_offset=offset,
            progress=offset + 1,
            kind="new" if attempt == 1 else "retry",
            attempt=attempt,
            client_id=f"10.0.4.{20 + attempt}@{3100 + attempt}@7f3a",
            thread=f"{name}-{attempt}",
            token=f"{name}-{attempt}",
            state=state,
            claimed_at=UtcNow(-timedelta(seconds=claimed)),
            started_at=UtcNow(-timedelta(seconds=started)),
            finished_at=UtcNow(-timedelta(seconds=ended)),
            deadline=UtcNow(),
            failed=int(failed),
            error=f"{ERRORS[1]}: no answer within 30 s" if failed else "",
        )


def _by_spark(now: Any, logs: dict[str, list[Partition]], groups: dict[str, ConsumerGroup]) -> None:
    minutes = [floor(now, 1) - n * MINUTE for n in range(60, 1, -1)]
    Latency.objects.bulk_create(_latencies(minutes, now, groups))
    ErrorClass.objects.bulk_create(
        ErrorClass(group=groups["ledger"], minute=at, error_class=name, failed=failed, dead=failed)
        for n, at in enumerate(minutes)
        for name, failed in (
            (ERRORS[0], int(30 + 12 * math.sin(n / 5))),
            (ERRORS[1], int(9 + 8 * math.sin(n / 11))),
            (ERRORS[2], 4 if n > 40 else 0),
        )
    )
    for name, partitions in logs.items():
        rate = TOPICS[name][2] * 60 / len(partitions)
        Traffic.objects.bulk_create(
            Traffic(
                partition=one,
                minute=at,
                first_offset=one.next_offset - int((len(minutes) - n) * rate),
                end_offset=one.next_offset - int((len(minutes) - n - 1) * rate),
                messages=int(rate),
                bytes=int(rate) * 700,
                keys=min(4000, int(rate)),
                delayed=0,
            )
            for one in partitions
            for n, at in enumerate(minutes)
        )
        HotKey.objects.bulk_create(
            HotKey(
                topic=partitions[0].topic,
                hour=floor(now, 60),
                place=place,
                key=f"customer-{17 * place}",
                messages=int(rate * 20 / place),
                bytes=int(rate * 20 / place) * 700,
                share=0.09 / place,
            )
            for place in range(1, 8)
        )
    for n, at in enumerate(minutes):
        for job in ("traffic", "consumption", "backlog"):
            is_failed = job == "consumption" and n == 31
            Run.objects.create(
                job=job,
                state="failed" if is_failed else "done",
                since=at,
                until=at + MINUTE,
                read=0 if is_failed else 190_000 + 900 * n,
                rows=0 if is_failed else 420 + n,
                seconds=1.4 + n % 7 / 5,
                error="Py4JJavaError: java.sql.SQLException: Lock wait timeout exceeded"
                if is_failed
                else "",
                started_at=at + MINUTE,
                finished_at=at + MINUTE + timedelta(seconds=3),
            )
    Position.objects.bulk_create(
        Position(partition=one, open_offset=one.next_offset, next_offset=one.next_offset)
        for partitions in logs.values()
        for one in partitions
    )


def _latencies(minutes: list[Any], now: Any, groups: dict[str, ConsumerGroup]) -> Iterator[Latency]:
    worst = {"billing": 11_000.0, "fraud-scores": 700.0, "ledger": 2.0, "smtp": 0.4, "clicks": 0.9}
    for name, seconds in worst.items():
        for n, at in enumerate(minutes):
            p50 = seconds * (0.6 + 0.4 * n / len(minutes))
            yield Latency(
                group=groups[name],
                minute=at,
                leg="total",
                messages=200,
                mean=p50,
                p50=p50,
                p95=p50 * 1.7,
                p99=p50 * (2.4 + math.sin(n / 4)),
                worst=p50 * 5,
            )


def _alarms(now: Any) -> None:
    hour = timedelta(hours=1)
    common = {"metric": "lag_age", "rule": "lag_age", "threshold": 600.0}
    rows: list[dict[str, Any]] = [
        {
            **common,
            "severity": "critical",
            "topic": "orders",
            "group": "billing",
            "value": 12_000.0,
            "state": "firing",
            "fired_at": now - 3 * hour,
        },
        {
            **common,
            "severity": "critical",
            "topic": "orders",
            "group": "shipping",
            "value": 11_400.0,
            "state": "acknowledged",
            "fired_at": now - 2.9 * hour,
            "acknowledged_at": now - 2 * hour,
            "acknowledged_by": "mei",
            "note": "the carrier's API is down, they call back at 15:00",
        },
        {
            "rule": "dead_new",
            "metric": "dead_new",
            "threshold": 0.0,
            "severity": "warning",
            "topic": "payments",
            "group": "ledger",
            "value": 193.0,
            "detail": ERRORS[0],
            "state": "firing",
            "fired_at": now - 2.5 * hour,
            "runbook": "https://example.com/runbooks/dead-letters",
        },
        {
            "rule": "expired",
            "metric": "expired",
            "threshold": 0.0,
            "severity": "warning",
            "topic": "mails",
            "group": "smtp",
            "value": 2.0,
            "state": "resolved",
            "fired_at": now - 9 * hour,
            "resolved_at": now - 8.8 * hour,
            "slot": None,
        },
    ]
    for row in rows:
        subject = f"{row['group']} on {row['topic']}"
        Alarm.objects.create(subject=subject, since=row["fired_at"], told_at=now, **row)
    AlarmChannel.objects.create(
        name="on-call",
        kind="slack",
        url="https://hooks.slack.example/services/T0/B0/secret",
        last_sent_at=timezone.now() - timedelta(minutes=4),
    )
    AlarmChannel.objects.create(
        name="tickets",
        kind="webhook",
        url="https://tickets.example.com/hook",
        last_sent_at=timezone.now() - 5 * hour,
        last_failed_at=timezone.now() - timedelta(minutes=2),
        last_error="ConnectionRefusedError: [Errno 111] Connection refused",
    )
