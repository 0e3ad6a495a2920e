"""The audit: does the database hold what EMS promises? It reads, and changes nothing.

It may run beside producers and consumers: each check compares what can only grow with what was
read before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django.db.models import Count, Exists, F, Max, Min, OuterRef

from streams.models import (
    Cursor,
    DeadMessage,
    Delivery,
    Kind,
    Message,
    Partition,
    RetryMessage,
    State,
)


@dataclass(frozen=True)
class Finding:
    """One broken promise."""

    kind: str
    where: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.where}: {self.detail}"


def audit(using: str) -> list[Finding]:
    """All findings on this database; an empty list if every promise holds."""
    return [
        *_inbox(using),
        *(finding for p in _partitions(using) for finding in _log(p, using)),
        *(finding for c in _cursors(using) for finding in _coverage(c, using)),
        *_failures(using),
        *_retries(using),
    ]


def _partitions(using: str) -> Iterator[Partition]:
    return Partition.objects.using(using).select_related("topic").order_by("id").iterator()


def _cursors(using: str) -> Iterator[Cursor]:
    cursors = Cursor.objects.using(using).filter(replay=0)
    return cursors.select_related("group__topic", "partition__topic").order_by("id").iterator()


def _inbox(using: str) -> Iterator[Finding]:
    """Messages that no sequencer will ever see."""
    partition = Partition.objects.using(using).filter(pk=OuterRef("partition"))
    lost = Message.objects.using(using).filter(~Exists(partition), offset=None).count()
    if lost:
        yield Finding("inbox without partition", "ems_msg", f"{lost} messages")


def _log(partition: Partition, using: str) -> Iterator[Finding]:
    """Invariant 2: the offsets first_offset … next_offset - 1 are all there, and no others."""
    log = Message.objects.using(using).filter(partition=partition, offset__isnull=False)
    expected = partition.next_offset - partition.first_offset
    inside = log.filter(
        offset__gte=partition.first_offset, offset__lt=partition.next_offset
    ).aggregate(n=Count("offset"), first=Min("offset"), last=Max("offset"))
    if inside["n"] != expected:
        found = f"{inside['n']} of {expected} offsets, {inside['first']} … {inside['last']}"
        yield Finding("hole", str(partition), found)


def _coverage(cursor: Cursor, using: str) -> Iterator[Finding]:
    """Invariant 3: every offset that the cursor has passed is covered by a delivery."""
    where = f"{cursor.group.name} on {cursor.partition}"
    floor = max(cursor.start_offset, cursor.partition.first_offset)
    ranges = (
        Delivery.objects.using(using)
        .filter(group=cursor.group_id, partition=cursor.partition_id)
        .exclude(kind=Kind.RETRY)
        .order_by("first_offset")
        .values_list("first_offset", "last_offset")
    )
    covered = floor
    for first, last in ranges.iterator():
        if first > covered:
            yield Finding("uncovered", where, f"offsets {covered} … {first - 1}")
        covered = max(covered, last + 1)
    if covered < cursor.next_offset:
        yield Finding("uncovered", where, f"offsets {covered} … {cursor.next_offset - 1}")


def _failures(using: str) -> Iterator[Finding]:
    """Invariant 4: what a delivery did not finish is in another table, or was delivered again."""
    unfinished = (
        Delivery.objects.using(using)
        .filter(state__in=(State.RETRY, State.RELEASED))
        .select_related("group", "partition__topic")
    )
    for delivery in unfinished.iterator():
        place = {"group": delivery.group_id, "partition": delivery.partition_id}
        span = {"offset__gte": delivery.first_offset, "offset__lte": delivery.last_offset}
        later = Delivery.objects.using(using).filter(
            **place,
            kind=Kind.RETRY,
            pk__gt=delivery.pk,
            first_offset__gte=delivery.first_offset,
            first_offset__lte=delivery.last_offset,
        )
        known = {
            *RetryMessage.objects.using(using)
            .filter(**place, **span)
            .values_list("offset", flat=True),
            *DeadMessage.objects.using(using)
            .filter(**place, **span)
            .values_list("offset", flat=True),
            *later.values_list("first_offset", flat=True),
        }
        unsettled = delivery.last_offset + 1 - delivery.progress
        expected = delivery.failed + unsettled - delivery.missing
        if len(known) < expected:
            where = f"{delivery.group.name} on {delivery.partition}"
            detail = (
                f"delivery {delivery.pk} left {expected} offsets, {len(known)} are accounted for"
            )
            yield Finding("lost failure", where, detail)


def _retries(using: str) -> Iterator[Finding]:
    """Retry rows that can never be delivered."""
    rows = RetryMessage.objects.using(using)
    holder = Delivery.objects.using(using).open().filter(pk=OuterRef("delivery"))
    for row in rows.exclude(delivery=None).filter(~Exists(holder)).iterator():
        yield Finding("stuck retry", str(row), f"held by delivery {row.delivery_id}, which ended")
    body = Message.objects.using(using).filter(
        partition=OuterRef("partition"), offset=OuterRef("offset")
    )
    bodiless = rows.filter(~Exists(body), dead_letter=None).values_list(
        F("group"), F("partition"), F("offset")
    )
    for group, partition, offset in bodiless.iterator():
        yield Finding("retry without body", f"{group}:{partition}:{offset}", "the message is gone")
