"""Audits what is new, each minute: the continuous audit.

It looks at the newest part of each partition and each cursor, as the audit of ems_doctor does, and
at what the newest deliveries found missing. It begins at the end of the log, and it needs no more
than SECONDS in a run: what it does not reach, the next run begins with.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta

from django.db.models import Max, Min

from monitoring.alarms.log import MISSING
from monitoring.models import AuditFinding, AuditPlace
from monitoring.models.alarm_audit import MAX_DETAIL, MAX_PLACE
from streams.database.retrying import retrying
from streams.log.foreign import own_rows
from streams.models import ConsumerGroup, Cursor, Delivery, Partition, UtcNow
from streams.models.namespaces import namespace
from streams.observe.audit.finding import AuditPosition, Finding, joined
from streams.observe.audit.walk import WINDOW, look
from streams.steps.turns import is_turn

STEP = "audit"
EVERY = timedelta(minutes=1)
SECONDS = 2.0

LOG, GROUPS, OPEN, DELIVERIES = "log", "groups", "open", "deliveries"


def audit_if_due(using: str) -> None:
    """Audit what is new, unless any process has in the last EVERY."""
    if is_turn(STEP, EVERY, using):
        audit_newest(using)


def audit_newest(using: str, seconds: float = SECONDS) -> None:
    """Audit what is new since the last time, for at most ``seconds``, and note the findings."""
    limit = time.monotonic() + seconds
    note(look(AuditPosition(OPEN), using).findings, using)
    partitions = own_rows(Partition.objects.using(using), using)
    cursors = own_rows(Cursor.objects.using(using), using)
    _audit_deliveries(using, limit)
    for stage, ends in (
        (LOG, retrying(list, using, partitions.order_by("pk").values_list("pk", "next_offset"))),
        (GROUPS, retrying(list, using, cursors.order_by("pk").values_list("pk", "next_offset"))),
    ):
        for place in _moved(stage, dict(ends), using):
            if time.monotonic() > limit:
                return
            _audit_place(place, dict(ends)[place.row], using, limit)


def note(findings: Iterable[Finding], using: str, count: int = 1) -> None:
    """Write the findings, each once: what was found before is only seen again."""
    for finding in joined(findings):
        texts = finding.kind, finding.where[:MAX_PLACE], finding.detail[:MAX_DETAIL]
        digest = hashlib.sha256("\0".join(texts).encode()).digest()
        kind, where, detail = texts
        rows = AuditFinding.objects.using(using)
        _row, created = rows.get_or_create(
            namespace=namespace(),
            digest=digest,
            defaults={"kind": kind, "place": where, "detail": detail, "count": count},
        )
        if not created:
            rows.filter(digest=digest).update(seen_at=UtcNow())


def _moved(stage: str, ends: dict[int, int], using: str) -> Iterator[AuditPlace]:
    """Yield the places of a stage that have something new, the longest unseen first."""
    rows = AuditPlace.objects.using(using).filter(stage=stage).order_by("looked_at", "pk")
    places = retrying(list, using, rows)
    known = {place.row for place in places}
    new = [
        AuditPlace(stage=stage, row=row, offset=end, seen_offset=end)
        for row, end in ends.items()
        if row not in known
    ]
    AuditPlace.objects.using(using).bulk_create(new, ignore_conflicts=True)
    for place in places:
        end = ends.get(place.row)
        if end is not None and (place.offset, place.seen_offset) != (end, end):
            yield place


def _audit_place(place: AuditPlace, end: int, using: str, limit: float) -> None:
    """Audit one row from its place on, and move the place on.

    Of a group, what was already there the last time is not looked at again: since then its
    deliveries have ended, or the stage "open" finds them.
    """
    start = min(place.offset, end)
    position: AuditPosition | None = AuditPosition(place.stage, place.row, start, start)
    reached = start
    while position and position.row == place.row and position.stage == place.stage:
        window = look(position, using)
        note(window.findings, using)
        reached = max(reached, window.offset or reached)
        position = window.then
        if time.monotonic() > limit:
            break
    whole = reached >= end
    seen = min(place.seen_offset, end)
    offset = max(seen, start) if place.stage == GROUPS and whole else reached
    _move(place, offset, reached, using)


def _audit_deliveries(using: str, limit: float) -> None:
    """Note which deliveries found messages missing. Those that are held are looked at later.

    Not so a range that was given back: it has found nothing, and whoever takes it makes a new row.
    """
    deliveries = Delivery.objects.using(using)
    newest = deliveries.aggregate(newest=Max("pk"))["newest"] or 0
    oldest_held = deliveries.held().aggregate(oldest=Min("pk"))["oldest"]
    end = newest if oldest_held is None else oldest_held - 1
    place, created = AuditPlace.objects.using(using).get_or_create(
        namespace=namespace(), stage=DELIVERIES, row=0, defaults={"offset": end}
    )
    at = place.offset
    if created or at > newest:  # after a TRUNCATE the ids begin again
        at = min(at, end)
    names = _names(using)
    while at < end and time.monotonic() < limit:
        upto = min(at + WINDOW, end)
        rows = deliveries.filter(pk__gt=at, pk__lte=upto, missing__gt=0)
        columns = ("pk", "group", "missing", "first_offset", "last_offset")
        for pk, group, missing, first, last in rows.values_list(*columns):
            if group in names:
                detail = f"delivery {pk}: offsets {first}–{last}"
                note([_missing(names[group], detail)], using, missing)
        at = upto
    _move(place, at, at, using)


def _names(using: str) -> dict[int, str]:
    groups = ConsumerGroup.objects.using(using).select_related("topic")
    return {group.pk: str(group) for group in groups}


def _missing(where: str, detail: str) -> Finding:
    return Finding(MISSING, where, detail)  # type: ignore[arg-type]  # no finding of ems_doctor


def _move(place: AuditPlace, offset: int, seen: int, using: str) -> None:
    mine = AuditPlace.objects.using(using).filter(pk=place.pk)
    retrying(lambda: mine.update(offset=offset, seen_offset=seen, looked_at=UtcNow()), using)
