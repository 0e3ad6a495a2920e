"""The audit: does the database hold what EMS promises? It reads, and changes nothing.

It goes through the tables in windows of at most WINDOW offsets or rows, each in a snapshot of its
own. So it may run beside producers and consumers and holds up nobody, and it can be broken off
after any window and go on there. docs/operations.md says what each finding means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

from django.db.models import Count, Exists, OuterRef
from django.utils.translation import gettext as _

from streams.accounts import Account
from streams.findings import Finding, Position, Window, joined
from streams.models import (
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Kind,
    Message,
    Partition,
    RetryMessage,
    UtcNow,
)
from streams.models.message import MessageQuerySet
from streams.snapshot import snapshot
from streams.transactions import retrying

# Some hundredths of a second: no snapshot is open for longer.
WINDOW = 10_000
# So long after its deadline a delivery has been ended by a sweep, if anybody sweeps.
OVERDUE = timedelta(minutes=1)


def audit(using: str) -> list[Finding]:
    """All findings on this database; an empty list if every promise holds."""
    return list(joined(finding for window in walk(using) for finding in window.findings))


def walk(using: str, start: Position | None = None) -> Iterator[Window]:
    """The windows of an audit, from ``start`` to the end."""
    position: Position | None = start or Position()
    while position:
        window = retrying(lambda here=position: _look(here, using), using)  # type: ignore[misc]
        yield window
        position = window.then


def _look(position: Position, using: str) -> Window:
    with snapshot(using):
        return _LOOKS[position.stage](position, using)


def _inbox(position: Position, using: str) -> Window:
    """Messages that no sequencer will ever see, and no consumer."""
    known = set(Partition.objects.using(using).values_list("id", flat=True))
    # The servers jump through the index from partition to partition.
    named = Message.objects.using(using).order_by().values_list("partition", flat=True).distinct()
    findings = []
    for partition in sorted(set(named) - known):
        rows = Message.objects.using(using).filter(partition=partition)[:WINDOW].count()
        detail = _("%d messages or more") % rows
        findings.append(Finding("no partition", f"ems_msg of partition {partition}", detail))
    return Window(findings, position.next_stage(), _("inbox"))


def _log(position: Position, using: str) -> Window:
    """Invariant 2: the offsets first_offset … next_offset - 1 are there, once, and no others."""
    partitions = Partition.objects.using(using).select_related("topic").order_by("id")
    partition = partitions.filter(pk__gte=position.row).first()
    if partition is None:
        return Window([], position.next_stage())
    if partition.pk > position.row:
        position = Position(position.stage, partition.pk)
    start = max(position.offset, partition.first_offset)
    end = min(start + WINDOW, partition.next_offset)
    log = Message.objects.using(using).filter(partition=partition.pk)
    findings = [*_irregular(log, str(partition), start, end)]
    about = f"{partition}: {end} / {partition.next_offset}"
    if end < partition.next_offset:
        return Window(findings, position.at(end), about)
    for outside in (log.filter(offset__lt=0), log.filter(offset__gte=partition.next_offset)):
        if found := list(outside.order_by("offset").values_list("offset", flat=True)[:WINDOW]):
            detail = _("%(count)d messages from offset %(first)d on; the log ends before %(end)d")
            values = {"count": len(found), "first": found[0], "end": partition.next_offset}
            findings.append(Finding("outside the log", str(partition), detail % values))
    return Window(findings, position.next_row(), about)


def _irregular(log: MessageQuerySet, where: str, start: int, end: int) -> Iterator[Finding]:
    if start >= end:
        return
    inside = log.filter(offset__gte=start, offset__lt=end)
    counted = inside.aggregate(rows=Count("pk"), offsets=Count("offset", distinct=True))
    if counted["rows"] == counted["offsets"] == end - start:
        return
    expected = start
    for offset in [*inside.order_by("offset").values_list("offset", flat=True), end]:
        if offset < expected:
            yield Finding("repeat", where, _("offset %d is there more than once") % offset)
        if offset > expected:
            yield Finding.stretch("hole", where, range(expected, offset))
        expected = offset + 1


def _group(position: Position, using: str) -> Window:
    """Invariants 3 and 4: what a group has passed is covered, and what has failed is kept."""
    cursors = Cursor.objects.using(using).select_related("group", "partition__topic")
    cursor = cursors.filter(pk__gte=position.row, replay=0).order_by("id").first()
    if cursor is None:
        return Window([], position.next_stage())
    if cursor.pk > position.row:
        position = Position(position.stage, cursor.pk)
    start = max(position.offset, cursor.start_offset, cursor.partition.first_offset)
    end = min(start + WINDOW, cursor.next_offset)
    account = Account(cursor, position.offset, end, position.covered, using)
    findings = list(account.findings())
    then = position.at(end, account.covered) if end < cursor.next_offset else position.next_row()
    return Window(findings, then, f"{cursor.group.name}, {cursor.partition}: {end}")


def _open(position: Position, using: str) -> Window:
    """Deliveries in hand: every one ends, and a retry has its row to end with."""
    deliveries = Delivery.objects.using(using).open().order_by("deadline")
    rows = RetryMessage.objects.using(using).filter(
        group=OuterRef("group"),
        partition=OuterRef("partition"),
        offset=OuterRef("first_offset"),
        delivery=OuterRef("pk"),
    )
    findings = []
    for delivery in deliveries.filter(deadline__lt=UtcNow(-OVERDUE))[:WINDOW]:
        detail = _("delivery %(id)d should have ended at %(deadline)s UTC")
        values = {"id": delivery.pk, "deadline": f"{delivery.deadline:%Y-%m-%d %H:%M:%S}"}
        findings.append(Finding("unended", _where(delivery, using), detail % values))
    for delivery in deliveries.filter(~Exists(rows), kind=Kind.RETRY)[:WINDOW]:
        detail = _("delivery %d retries an offset that has no retry row") % delivery.pk
        findings.append(Finding("lost failure", _where(delivery, using), detail))
    return Window(findings, position.next_stage(), _("open deliveries"))


def _retries(position: Position, using: str) -> Window:
    """Retry rows that can never be delivered."""
    holder = Delivery.objects.using(using).open().filter(pk=OuterRef("delivery"))
    body = Message.objects.using(using).filter(
        partition=OuterRef("partition"), offset=OuterRef("offset")
    )
    letter = DeadMessage.objects.using(using).filter(pk=OuterRef("dead_letter"))
    rows = RetryMessage.objects.using(using).filter(pk__gte=position.row).order_by("pk")
    checked = rows.annotate(held=Exists(holder), body=Exists(body), letter=Exists(letter))
    findings = []
    last = None
    for row in checked[:WINDOW]:
        last = row.pk
        if row.delivery_id and not row.held:
            detail = _("it is held by delivery %d, which has ended") % row.delivery_id
            where = f"{_where(row, using)} at {row.offset}"
            findings.append(Finding("stuck retry", where, detail))
        if not (row.body or row.letter):
            where = f"{_where(row, using)} at {row.offset}"
            findings.append(Finding("retry without body", where, _("the message is gone")))
    if last is None:
        return Window(findings, position.next_stage(), _("retries"))
    return Window(findings, Position(position.stage, last + 1), _("retries"))


def _where(row: Delivery | RetryMessage, using: str) -> str:
    # Not joined: the servers might begin with the other table, and sort this one.
    group = ConsumerGroup.objects.using(using).get(pk=row.group_id)
    partition = Partition.objects.using(using).select_related("topic").get(pk=row.partition_id)
    return f"{group.name} on {partition}"


_LOOKS: dict[str, Callable[[Position, str], Window]] = {
    "inbox": _inbox,
    "log": _log,
    "groups": _group,
    "open": _open,
    "retries": _retries,
}
