"""Writes what the Spark jobs would have written."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from monitoring.models import ErrorClass, HotKey, Latency, Position, Run, Traffic
from monitoring.sample.grain import floor
from streams.models import ConsumerGroup, Partition
from tests.browser.worst.figures import ERRORS, MINUTE, TOPICS


def by_spark(now: Any, logs: dict[str, list[Partition]], groups: dict[str, ConsumerGroup]) -> None:
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
