"""Writes a bad quarter: 40 deployments a day, an alarm that flaps, resets and pauses, backlogs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from monitoring.models import Alarm, BacklogLevel, Grain, Mark
from monitoring.sample.grain import floor
from streams.models import ConsumerGroup
from tests.browser.worst.figures import BEHIND, MINUTE

DAYS, DEPLOYMENTS, FLAPS = 90, 40, 200
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def past(now: Any, groups: dict[str, ConsumerGroup]) -> None:
    every = list(ConsumerGroup.objects.order_by("pk"))
    BacklogLevel.objects.bulk_create(_levels(now, every), 1000)
    Mark.objects.bulk_create(_marks(now, groups, [one.pk for one in every]), 1000)
    Alarm.objects.bulk_create(
        Alarm(
            rule="dead_new",
            metric="dead_new",
            severity="warning",
            topic="payments",
            group="ledger",
            subject="ledger on payments",
            state="resolved",
            slot=None,
            value=3,
            threshold=0,
            since=now - (6 + n) * HOUR / 4,
            fired_at=now - (6 + n) * HOUR / 4,
            resolved_at=now - (5.5 + n) * HOUR / 4,
        )
        for n in range(FLAPS)
    )


def _levels(now: Any, groups: list[ConsumerGroup]) -> Iterator[BacklogLevel]:
    for grain, count in ((Grain.HOUR, 24 * 8), (Grain.DAY, DAYS)):
        length = timedelta(minutes=grain)
        for n in range(count):
            start = floor(now, grain) - n * length
            if grain == Grain.HOUR and 60 <= n < 66:
                continue  # nobody took a sample
            for group in groups:
                behind, age = _behind(str(group.name), (now - start) / DAY, group.pk)
                yield BacklogLevel(
                    group=group,
                    grain=grain,
                    start=start,
                    samples=grain,
                    behind=behind,
                    least=behind // 3,
                    waiting=0,
                    dead=0,
                    age_seconds=age,
                )


def _behind(name: str, ago: float, pk: int) -> tuple[int, float]:
    """Return the messages behind, and the age of the oldest, so many days ago."""
    since = {"billing": 3.2, "exports": 1.1, "pdf": 9.0}.get(name)
    if since is not None:
        share = max(0.0, 1 - ago / since)
        return int(BEHIND * share) + 40, 86_400 * since * share + 2
    if name in ("fraud-scores", "shipping"):
        share = max(0.0, math.sin(2 * math.pi * ago + pk)) ** 3
        return int(88_000 * share), 2_400 * share
    return int(30 * (1 + math.sin(7 * ago + pk))), 3.0


def _marks(now: Any, groups: dict[str, ConsumerGroup], every: list[int]) -> Iterator[Mark]:
    sets = ([groups["billing"].pk, groups["exports"].pk], [groups["ledger"].pk], every)
    for n in range(DAYS * DEPLOYMENTS):
        at = now - 2 * HOUR - n * DAY / DEPLOYMENTS
        chosen = sets[n % len(sets)]
        yield Mark(
            kind="deployment", at=at, until=at + 4 * MINUTE, groups=chosen, count=12, text=""
        )
    acts = (
        ("billing", "reset", 3.2, "orders/0: 1,204 → 0, 1,204 again; orders/1: 900 → 0, 900 again"),
        ("billing", "undo", 3.1, "orders/0: 40 → 1,204; orders/1: 12 → 900"),
        ("exports", "pause", 1.1, "paused"),
        ("exports", "resume", 0.1, "resumed"),
        ("pdf", "pause", 9.0, "paused"),
    )
    for name, kind, days, text in acts:
        group = groups[name]
        at = now - days * DAY
        yield Mark(
            kind=kind,
            at=at,
            until=at,
            text=text,
            who="mei",
            topic_id=group.topic_id,
            groups=[group.pk],
        )
    at = now - 5 * DAY
    yield Mark(
        kind="purge",
        at=at,
        until=at,
        count=61_400,
        text="orders/1",
        topic_id=groups["billing"].topic_id,
    )
