"""Writes what the jobs of the night would have written: days, a lake, runs and findings."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, timedelta
from typing import Any

from monitoring.models import AuditFinding, Run
from monitoring.models.archive import ArchivedDay
from monitoring.models.lake import LakeFile, LakePosition
from streams.models import Partition, Step, Topic
from tests.browser.worst.site import messages

DAY = timedelta(days=1)
DAYS, FINDINGS = 90, 40


def nights(now: Any, logs: dict[str, list[Partition]]) -> None:
    """The topics of the worst case are archived: two have gaps, one was left for five days."""
    for name, partitions in logs.items():
        Topic.objects.filter(name=name).update(archive=True, retention_seconds=3 * 86400)
        for partition in partitions:
            left = 5 if name == "mails" else 0
            gaps = {"orders": (40, 41), "payments": (12,)}.get(name, ())
            archived(now, partition, left, gaps if partition.number < 2 else ())
            LakePosition.objects.create(
                partition=partition,
                first_offset=partition.first_offset,
                next_offset=partition.next_offset - 900,
            )
        LakeFile.objects.bulk_create(lake_file(now, name, n) for n in range(24))
    runs(now)
    findings(now)


def many(now: Any, count: int) -> None:
    """As many topics more, with three gaps in all."""
    names = [f"events.tenant-{n:03}" for n in range(count)]
    Topic.objects.bulk_create(Topic(name=name, archive=True) for name in names)
    Partition.objects.bulk_create(
        Partition(topic=topic, next_offset=5_000_000, first_offset=4_000_000)
        for topic in Topic.objects.filter(name__in=names)  # MySQL gives no ids back
    )
    new = Partition.objects.filter(topic__name__in=names).select_related("topic")
    for n, partition in enumerate(new.order_by("topic__name")):
        archived(now, partition, 3 if n % 100 == 7 else 0, (30 + n,) if n in (3, 17, 40) else ())


def archived(now: Any, partition: Partition, left: int, gaps: Sequence[int]) -> None:
    """Archive all days but the last ``left`` ones, and those of ``gaps``, which are days ago."""
    a_day = partition.next_offset // (DAYS + 1)
    today = now.astimezone(UTC).date()
    rows = []
    for ago in range(DAYS, left, -1):
        end = partition.next_offset - ago * a_day
        rows.append(
            ArchivedDay(
                partition=partition,
                day=today - ago * DAY,
                topic=partition.topic.name,
                number=partition.number,
                first_offset=end - a_day,
                end_offset=end,
                messages=a_day,
                bytes=a_day * 700,
                hash="1",
                path=f"/srv/ems/date={today - ago * DAY}",
                archived_at=now - (ago - 1) * DAY,
            )
        )
    ArchivedDay.objects.bulk_create(one for n, one in enumerate(rows) if DAYS - n not in gaps)
    Partition.objects.filter(pk=partition.pk).update(archived_offset=rows[-1].end_offset)
    if left:
        messages(partition, rows[-1].end_offset, 1, left * DAY)


def lake_file(now: Any, topic: str, n: int) -> LakeFile:
    return LakeFile(
        topic=topic,
        day=(now - n // 8 * DAY).date(),
        path=f"date={(now - n // 8 * DAY).date()}/topic={topic}/{n}.parquet",
        messages=190_000,
        bytes=133_000_000,
        size=21_000_000,
        version=1,
        added_at=now - n * timedelta(hours=3),
        retired_at=now - timedelta(hours=4) if n % 5 == 0 else None,
    )


def runs(now: Any) -> None:
    """Three weeks of reconcile, the last was killed two days ago; of archive, one failed."""
    for ago in range(21, 1, -1):
        at = now - ago * DAY
        is_last = ago == 2
        Run.objects.create(
            job="reconcile",
            state="running" if is_last else "failed" if ago == 9 else "done",
            since=None if is_last else at - 7 * DAY,
            until=None if is_last else at,
            read=None if is_last else 51_204_000,
            rows=None if is_last else FINDINGS if ago == 3 else 0,
            seconds=None if is_last else 912.4,
            about=""
            if is_last or ago == 9
            else "51,204,000 messages of 12 partitions, 93 cursors: "
            + ("40 findings" if ago == 3 else "nothing is wrong"),
            error="Py4JJavaError: java.lang.OutOfMemoryError: Java heap space" if ago == 9 else "",
            started_at=at,
            finished_at=None if is_last else at + timedelta(minutes=15),
        )
    Run.objects.create(
        job="archive",
        state="failed",
        error=f"NotArchived: mails {(now - 5 * DAY).date()}: ArchiveDiffers: the database has"
        " 920,000 messages, /srv/ems has 919,999",
        started_at=now - timedelta(hours=2),
        finished_at=now - timedelta(hours=2) + timedelta(minutes=6),
    )
    Step.objects.update_or_create(name="audit", defaults={"last_run_at": now})


def findings(now: Any) -> None:
    kinds = ("hole", "repeat", "lost delivery", "order break")
    places = ("orders/{0}@{1}-{2}", "billing on orders/{0}@{1}", "ledger on payments/0@{1}-{2}")
    AuditFinding.objects.bulk_create(
        AuditFinding(
            digest=hashlib.sha256(b"%d" % n).digest(),
            source="reconcile" if n % 8 else "audit",
            kind=kinds[n % 4],
            place=places[n % 3].format(n % 3, 1_204_000 + 977 * n, 1_204_000 + 977 * n + n),
            detail="passed, and in none of its deliveries" if n % 4 == 2 else "not in the log",
            count=n + 1,
            found_at=now - (9 - n % 5) * DAY,
            seen_at=now - (9 if n >= FINDINGS else 3 if n % 8 else 0) * DAY,
        )
        for n in range(FINDINGS + 6)
    )
