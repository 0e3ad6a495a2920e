"""Walks through the tables and compares them with what EMS promises. It changes nothing.

It reads windows of at most WINDOW offsets or rows, each in its own snapshot. So it may run beside
producers and consumers without delaying them, and it can be stopped after any window and go on
there. docs/reference/doctor.md says what each finding means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from operator import itemgetter
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet
from django.utils.translation import gettext as _

from streams.database.retrying import retrying
from streams.database.snapshot import snapshot
from streams.log.foreign import own_rows
from streams.log.rewinds import holes
from streams.models import (
    IMMEDIATE,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Kind,
    Message,
    Partition,
    PreparedRow,
    PreparedState,
    RetryMessage,
    UtcNow,
)
from streams.models.message import MessageQuerySet
from streams.observe.audit.coverage import Coverage
from streams.observe.audit.finding import AuditPosition, AuditWindow, Finding, joined
from streams.observe.audit.finding import FindingKind as FindingKind

# In offsets or rows. Reading them takes some hundredths of a second, which bounds how long a
# snapshot is open.
WINDOW = 10_000
# This long after its deadline a delivery has been ended by a sweep, if any process sweeps.
OVERDUE = timedelta(minutes=1)


def audit(using: str) -> list[Finding]:
    """Return all findings on this database; an empty list if all that is checked holds."""
    return list(joined(finding for window in walk(using) for finding in window.findings))


def walk(using: str, start: AuditPosition | None = None) -> Iterator[AuditWindow]:
    """Yield the windows of an audit, from ``start`` to the end."""
    position: AuditPosition | None = start or AuditPosition()
    while position:
        window = look(position, using)
        yield window
        position = window.then


def look(position: AuditPosition, using: str) -> AuditWindow:
    """Audit the one window that begins at ``position``."""
    return retrying(_look, using, position, using)


def _look(position: AuditPosition, using: str) -> AuditWindow:
    with snapshot(using):
        return _LOOKS[position.stage](position, using)


def _inbox(position: AuditPosition, using: str) -> AuditWindow:
    """Find messages that no sequencer and no consumer will ever see."""
    known = set(Partition.objects.using(using).values_list("id", flat=True))
    # The servers read one entry of the index for each partition.
    named = Message.objects.using(using).order_by().values_list("partition", flat=True).distinct()
    findings = []
    for partition in sorted(set(named) - known):
        rows = Message.objects.using(using).filter(partition=partition)[:WINDOW].count()
        detail = _("%d messages or more") % rows
        findings.append(Finding("no partition", f"ems_msg of partition {partition}", detail))
    for one in own_rows(Partition.objects.using(using).select_related("topic"), using):
        # Each read is a part of the index of the inbox, which begins with what has no time.
        timeless = Message.objects.using(using).inbox().filter(partition=one.pk, due_at=None)
        if count := timeless[:WINDOW].count():
            findings.append(Finding("no time", str(one), _("%d messages") % count))
    return AuditWindow(findings, position.next_stage(), _("inbox"))


def _log(position: AuditPosition, using: str) -> AuditWindow:
    """Check invariant 2: the offsets first_offset … next_offset - 1 exist once, and no others.

    They are in the order in which each pass of the sequencer had to give them.
    """
    partitions = Partition.objects.using(using).select_related("topic")
    partitions = own_rows(partitions, using)
    position = _next_row(position, partitions)
    if not position.row:
        return AuditWindow([], position.next_stage())
    partition = partitions.filter(pk=position.row).first()
    if partition is None:  # deleted meanwhile
        return AuditWindow([], position.next_row())
    start = max(position.offset, partition.first_offset)
    end = min(start + WINDOW, partition.next_offset)
    log = Message.objects.using(using).filter(partition=partition.pk)
    left_out = holes(partition.pk, partition.epoch, using)
    findings: list[Finding] = []
    for part, is_kept in _parts(range(start, end), [hole.offsets for hole in left_out]):
        if is_kept:
            findings += _irregular(log, str(partition), part.start, part.stop)
        elif count := log.filter(offset__gte=part.start, offset__lt=part.stop).count():
            detail = _("%(count)d messages from offset %(first)d on, which are left out")
            inside = {"count": count, "first": part.start}
            findings.append(Finding("outside the log", str(partition), detail % inside))
    about = f"{partition}: {end} / {partition.next_offset}"
    if end < partition.next_offset:
        return AuditWindow(findings, position.at(end), about, end)
    for outside in (log.filter(offset__lt=0), log.filter(offset__gte=partition.next_offset)):
        if found := list(outside.order_by("offset").values_list("offset", flat=True)[:WINDOW]):
            detail = _("%(count)d messages from offset %(first)d on; the log ends before %(end)d")
            values = {"count": len(found), "first": found[0], "end": partition.next_offset}
            findings.append(Finding("outside the log", str(partition), detail % values))
    return AuditWindow(findings, position.next_row(), about, end)


def _next_row(position: AuditPosition, rows: QuerySet[Any]) -> AuditPosition:
    """Return the same position, or the beginning of the next row if its row is gone."""
    # In a statement without joins: ordered and joined, MariaDB sorts the table for one row.
    ids = rows.filter(pk__gte=position.row).order_by("pk").values_list("pk", flat=True)
    first = ids.first() or 0
    return position if first == position.row else AuditPosition(position.stage, first)


def _parts(offsets: range, left_out: list[range]) -> Iterator[tuple[range, bool]]:
    """Yield the offsets in parts, and whether messages have them: in a log that was rewound."""
    start = offsets.start
    for hole in left_out:
        first, end = max(start, hole.start), min(offsets.stop, hole.stop)
        if first < end:
            yield range(start, first), True
            yield range(first, end), False
            start = end
    yield range(start, offsets.stop), True


def _irregular(log: MessageQuerySet, where: str, start: int, end: int) -> Iterator[Finding]:
    if start >= end:
        return
    # With the message before them: a pass may have gone on from one window into the next. The
    # servers read entries of ems_msg_inbox alone.
    inside = log.filter(offset__gte=max(start - 1, 0), offset__lt=end).order_by("offset")
    rows = [(offset or 0, pk) for offset, pk in inside.values_list("offset", "pk")]
    expected = start
    for offset in [offset for offset, _pk in rows if offset >= start] + [end]:
        if offset < expected:
            yield Finding("repeat", where, _("offset %d is there more than once") % offset)
        if offset > expected:
            yield Finding.stretch("hole", where, range(expected, offset))
        expected = offset + 1
    yield from _disorder(inside, where, rows)


# Offset and id of a message in the log.
Placed = tuple[int, int]


def _disorder(inside: MessageQuerySet, where: str, rows: list[Placed]) -> Iterator[Finding]:
    """Find neighbours that stand against the order in which their pass had to place them.

    A pass places delayed messages as they are due, then the others as they were sent. Whoever
    stands behind a message that was sent later has been committed late, so a later pass has placed
    it: the sequencer gives each pass over a partition its own, higher sequenced_at.
    """
    delayed = dict(inside.exclude(due_at=IMMEDIATE).values_list("offset", "due_at"))

    def rank(row: Placed) -> tuple[bool, datetime, int]:
        offset, pk = row
        due_at = delayed.get(offset) or IMMEDIATE  # None: of a row that somebody has changed
        return due_at == IMMEDIATE, due_at, pk

    key = rank if delayed else itemgetter(1)  # what is compared of most logs
    falls = [(one, two) for one, two in pairwise(rows) if key(one) > key(two)]
    if not falls:
        return
    near = inside.filter(offset__gte=falls[0][0][0], offset__lte=falls[-1][1][0])
    placed_at = dict(near.values_list("pk", "sequenced_at"))
    for (one, one_pk), (two, two_pk) in falls:
        before, after = placed_at[one_pk], placed_at[two_pk]
        if before and after and after <= before:
            detail = _(
                "offset %(two)d belongs before offset %(one)d: no later pass of the sequencer has"
                " placed it"
            )
            yield Finding("disorder", where, detail % {"one": one, "two": two})


def _group(position: AuditPosition, using: str) -> AuditWindow:
    """Check invariants 3 and 4: what a group has passed is covered, and what failed is kept."""
    cursors = Cursor.objects.using(using).select_related("group", "partition__topic")
    cursors = own_rows(cursors, using)
    position = _next_row(position, cursors)
    if not position.row:
        return AuditWindow([], position.next_stage())
    cursor = cursors.filter(pk=position.row).first()
    if cursor is None:
        # Either the cursor exists without its group or partition, or it was deleted meanwhile.
        orphan = Cursor.objects.using(using).filter(pk=position.row).exists()
        detail = _("its group, partition or topic is not there")
        findings = [Finding("orphan", f"ems_cursor {position.row}", detail)] * orphan
        return AuditWindow(findings, position.next_row())
    floor = max(cursor.start_offset, cursor.partition.first_offset, cursor.log_offset)
    start = max(position.offset, floor)
    end = min(start + WINDOW, cursor.next_offset)
    account = Coverage(cursor, position.offset, end, position.covered, using)
    findings = list(account.findings())
    then = position.at(end, account.covered) if end < cursor.next_offset else position.next_row()
    return AuditWindow(findings, then, f"{cursor.group.name}, {cursor.partition}: {end}", end)


def _open(position: AuditPosition, using: str) -> AuditWindow:
    """Find open deliveries that nobody ends, and claims of retries without a retry row.

    And two claims of new messages at once in a partition of an ordered group.
    """
    row = RetryMessage.objects.using(using).filter(
        group=OuterRef("group"),
        partition=OuterRef("partition"),
        offset=OuterRef("first_offset"),
        delivery=OuterRef("pk"),
    )
    deliveries = own_rows(Delivery.objects.using(using).open(), using).order_by("deadline")
    overdue = deliveries.exclude(token="").filter(deadline__lt=UtcNow(-OVERDUE))
    ordered = ConsumerGroup.objects.using(using).filter(ordered=True).values_list("pk", flat=True)
    in_turn = deliveries.exclude(token="").filter(kind=Kind.NEW, group__in=list(ordered))
    rowless = deliveries.filter(~Exists(row), kind=Kind.RETRY)
    bad: list[Bad] = [
        ("unended", d.group_id, d.partition_id, d.first_offset, _("delivery %d") % d.pk)
        for d in overdue[:WINDOW]
    ]
    bad += [
        ("lost failure", d.group_id, d.partition_id, d.first_offset, _("no retry row for it"))
        for d in rowless[:WINDOW]
    ]
    held: dict[tuple[int, int], int] = {}
    for d in in_turn[:WINDOW]:
        if other := held.get((d.group_id, d.partition_id)):
            detail = _("deliveries %(one)d and %(two)d are open, and the group is ordered")
            values = {"one": other, "two": d.pk}
            bad.append(("disorder", d.group_id, d.partition_id, d.first_offset, detail % values))
        held[d.group_id, d.partition_id] = d.pk
    return AuditWindow(_named(bad, using), position.next_stage(), _("open deliveries"))


def _retries(position: AuditPosition, using: str) -> AuditWindow:
    """Find retry rows that can never be delivered."""
    holder = Delivery.objects.using(using).open().filter(pk=OuterRef("delivery"))
    body = Message.objects.using(using).filter(
        partition=OuterRef("partition"), offset=OuterRef("offset")
    )
    letter = DeadMessage.objects.using(using).filter(pk=OuterRef("dead_letter"))
    rows = own_rows(RetryMessage.objects.using(using), using)
    rows = rows.filter(pk__gte=position.row).order_by("pk")
    rows = rows.annotate(is_held=Exists(holder), has_body=Exists(body) | Exists(letter))
    columns = ("pk", "group", "partition", "offset", "delivery", "is_held", "has_body")
    then = position.next_stage()
    bad: list[Bad] = []
    for row in rows.values_list(*columns)[:WINDOW]:
        pk, group, partition, offset, delivery, is_held, has_body = row
        then = AuditPosition(position.stage, pk + 1)
        if delivery and not is_held:
            detail = _("held by delivery %d, which has ended") % delivery
            bad.append(("stuck retry", group, partition, offset, detail))
        if not has_body:
            bad.append(("retry without body", group, partition, offset, _("its message is gone")))
    return AuditWindow(_named(bad, using), then, _("retries"))


def _prepared(position: AuditPosition, using: str) -> AuditWindow:
    """Find prepared messages that nobody will ever ask about, and sent ones without a message."""
    rows = PreparedRow.objects.using(using).filter(pk__gte=position.row).order_by("pk")
    columns = ("pk", "biz", "biz_key", "state", "next_at", "message_id")
    found = list(rows.values_list(*columns)[:WINDOW])
    findings = []
    for _pk, biz, biz_key, state, next_at, message_id in found:
        where = f"{biz}:{biz_key}"
        if state not in PreparedState.values:
            findings.append(Finding("undecided", where, _("its state is %r") % state))
        elif state in (PreparedState.PREPARED, PreparedState.COMMITTED) and next_at is None:
            findings.append(Finding("undecided", where, _("it has no time for the next check")))
        elif state == PreparedState.SENT and message_id is None:
            findings.append(Finding("unsent", where, _("it is sent, and has no message")))
    if len(found) < WINDOW:
        return AuditWindow(findings, position.next_stage(), _("prepared messages"))
    then = AuditPosition(position.stage, found[-1][0] + 1)
    return AuditWindow(findings, then, _("prepared messages"))


# Kind, ids of group and partition, offset, detail.
Bad = tuple[FindingKind, int, int, int, str]


def _named(bad: list[Bad], using: str) -> list[Finding]:
    """Return the findings with the names of groups and partitions.

    The names are read by separate statements: with a join, the servers might begin with the other
    table, and sort the large one.
    """
    if not bad:
        return []
    groups = dict(ConsumerGroup.objects.using(using).values_list("pk", "name"))
    partitions = Partition.objects.using(using).select_related("topic").in_bulk()
    return [
        Finding(kind, f"{groups.get(group)} on {partitions.get(partition)} at {offset}", detail)
        for kind, group, partition, offset, detail in bad
    ]


_LOOKS: dict[str, Callable[[AuditPosition, str], AuditWindow]] = {
    "inbox": _inbox,
    "log": _log,
    "groups": _group,
    "open": _open,
    "retries": _retries,
    "prepared": _prepared,
}
