"""Measures the log: what is not sequenced, and what the continuous audit has found."""

from __future__ import annotations

import re
from collections import Counter
from datetime import timedelta

from django.db.models import Count, Q, QuerySet, Sum

from monitoring.alarms.measured import Subject, Value, Values
from monitoring.live.spark_jobs import own
from monitoring.models import AuditFinding, AuditSource, Run, RunState
from monitoring.models.alarm_audit import MAX_PLACE
from streams.models import ConsumerGroup, PreparedRow, UtcNow
from streams.observe.inbox import waiting
from streams.observe.mysql_server import table_sizes
from streams.observe.rewinds import rewound

# The kind of the findings that say which deliveries found messages gone.
MISSING = "missing"
# The job of the runs that compare the whole history.
RECONCILE = "reconcile"
# How long a finding of the continuous audit fires.
MISSING_FOR, FOUND_FOR = timedelta(hours=1), timedelta(days=1)
# The most subjects that findings have, and the name of the one that all the others share.
SUBJECTS, OTHERS = 20, "others"
# The most findings that one measurement reads; the rest are counted.
AT_MOST = 1000
# At the end of the place of a finding.
OFFSETS = re.compile(r"@\d+(-\d+)?$")


def not_sequenced(using: str) -> Values:
    """Return the age of the oldest message of each topic that is due and has no offset."""
    found: dict[Subject, Value] = {}
    for (topic, _number), age in waiting(using).items():
        before = found.get(Subject(topic), Value(0.0)).number or 0.0
        found[Subject(topic)] = Value(max(before, age.total_seconds()))
    return found


def missing(using: str) -> Values:
    """Return how many messages were gone when they were to be read, by group."""
    rows = AuditFinding.objects.using(using).filter(
        kind=MISSING, found_at__gt=UtcNow(-MISSING_FOR), seen_at__gt=UtcNow(-MISSING_FOR)
    )
    counts = dict(rows.values_list("place").annotate(n=Sum("count")))
    groups = _groups(using) if counts else {}
    return {groups.get(place, Subject(name=place)): Value(float(n)) for place, n in counts.items()}


def _groups(using: str) -> dict[str, Subject]:
    """Return the groups by the text that a finding has of them."""
    names = ConsumerGroup.objects.using(using).values_list("topic__name", "name")
    subjects = (Subject(topic, group) for topic, group in names)
    return {str(subject)[:MAX_PLACE]: subject for subject in subjects}


def audit_finding(using: str) -> Values:
    """Return how many findings of each kind the continuous audit has in each log."""
    rows = AuditFinding.objects.using(using).filter(is_open(AuditSource.AUDIT, using))
    return _by_log(rows.exclude(kind=MISSING))


def reconcile(using: str) -> Values:
    """Return the same of the last reconcile that came to its end."""
    rows = AuditFinding.objects.using(using)
    return _by_log(rows.filter(is_open(AuditSource.RECONCILE, using)))


def is_open(source: AuditSource, using: str) -> Q:
    """Return the condition of the findings that are wrong now.

    The continuous audit has seen it within FOUND_FOR; or the last reconcile that came to its end.
    """
    if source == AuditSource.AUDIT:
        return Q(source=source, seen_at__gt=UtcNow(-FOUND_FOR))
    done = Run.objects.using(using).filter(job=own(RECONCILE), state=RunState.DONE).order_by("-pk")
    last = done.values_list("until", flat=True).first()
    # Runs are deleted earlier: what the last one has found is wrong until another one has looked.
    return Q(source=source, seen_at__gte=last) if last else Q(source=source)


def _by_log(rows: QuerySet[AuditFinding]) -> Values:
    """Return how many findings of each kind each log, or group, has; ``detail`` is the newest.

    What was found first has subjects of its own, so that more findings change none of them.
    """
    found: dict[str, list[str]] = {}
    read = list(rows.order_by("pk").values_list("kind", "place")[:AT_MOST])
    for kind, place in read:
        found.setdefault(f"{kind} in {OFFSETS.sub('', place)}", []).append(place)
    named = dict(list(found.items())[:SUBJECTS])
    values = {
        Subject(name=name): Value(float(len(places)), places[-1]) for name, places in named.items()
    }
    total = rows.count() if len(read) == AT_MOST else len(read)
    if rest := total - sum(map(len, named.values())):
        values[Subject(name=OTHERS)] = Value(float(rest), read[-1][1])
    return values


def prepared(using: str) -> Values:
    """Return how many prepared messages of each business wait for a person, for any reason."""
    rows = PreparedRow.objects.using(using)
    found: Counter[str] = Counter()
    for chosen in (rows.waiting_for_people(), rows.disputed()):  # each by its own index
        counts = chosen.order_by().values_list("biz").annotate(n=Count("pk"))
        found.update(dict(counts))
    return {Subject(name=biz): Value(float(n)) for biz, n in found.items()}


def rewinds(using: str) -> Values:
    """Return how often a log of each topic was rewound; ``detail`` tells of the last time."""
    found: dict[Subject, Value] = {}
    for one in rewound(using, FOUND_FOR):  # the newest first
        subject = Subject(one.partition.topic.name)
        place = f"{one.partition}@{one.first_offset} … {one.next_offset - 1}"
        number, detail = found.get(subject, Value(0.0, place))
        found[subject] = Value((number or 0.0) + 1, detail)
    return found


def disk(using: str) -> Values | None:
    """Return the size of each table of EMS, as the server estimates it; unknown on SQLite."""
    found = table_sizes(using)
    if found is None:
        return None
    return {
        Subject(name=name): Value(None if size is None else float(size))
        for name, size in found.items()
    }
