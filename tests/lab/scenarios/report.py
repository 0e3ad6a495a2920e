"""Reports what a scenario has shown, counted in the database when nothing runs any more."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection
from django.db.models import Max, Min, Sum

from streams.models import ConsumerGroup, DeadMessage
from streams.observe.audit.walk import audit
from tests.lab.scenarios.models import Record, Sent

GROUPS = {
    "Group1": "A",
    "Group4": "A",
    "Pulled": "A",
    "Group2": "B",
    "Group3": "B",
    "Order": "O",
    "All": "O",
}
# Group4 is reset and replayed, a broadcast client that dies repeats what it had not noted, and a
# client over HTTP what it had not acknowledged.
MAY_REPEAT = {"Group4", "All", "Pulled"}

MISSING = """
    SELECT COUNT(*) FROM scenarios_sent s LEFT JOIN scenarios_record r
    ON r.topic = s.topic AND r.`group` = %s AND r.producer = s.producer AND r.n = s.n
    WHERE s.topic = %s AND NOT s.is_void AND r.id IS NULL
"""
# A producer sends n before n + 1: in the log of a partition they must stand in that order. The
# ordered group must also have written its records of a key in that order, one after the other.
ORDER_BREAKS = """
    SELECT COUNT(*) FROM (
        SELECT n, LAG(n) OVER (PARTITION BY producer, `partition` ORDER BY `offset`) AS before_it,
        LAG(n) OVER (PARTITION BY producer, MOD(n, 63) ORDER BY id) AS handled_before_it, `group`
        FROM scenarios_record WHERE `group` = %s
    ) t WHERE n < before_it OR (`group` = 'Order' AND n < handled_before_it)
"""
LONGEST_GAP = """
    SELECT COALESCE(MAX(TIMESTAMPDIFF(MICROSECOND, before_it, at)), 0) / 1e6 FROM (
        SELECT at, LAG(at) OVER (ORDER BY at) AS before_it FROM scenarios_record
    ) t
"""


@dataclass(frozen=True)
class Row:
    """Holds the figures of one group."""

    group: str
    sent: int
    recorded: int
    missing: int
    duplicates: int
    order_breaks: int
    dead: int
    processes: int


@dataclass(frozen=True)
class Report:
    """Holds the table, and tells whether every promise held."""

    rows: list[Row]
    findings: list[str]
    rate: float
    longest_gap: float

    def failures(self, *, atomic: bool, may_miss: bool = False, in_order: bool = True) -> list[str]:
        """Broken promises, in words; ``in_order``: what was sent first stands first."""
        # What was truncated leaves holes behind, which the audit must name.
        wrong = [f for f in self.findings if not (may_miss and f.startswith("hole"))]
        for row in self.rows:
            if row.missing and not may_miss:
                wrong.append(f"{row.group} misses {row.missing}")
            if row.duplicates and atomic and row.group not in MAY_REPEAT:
                wrong.append(f"{row.group} has {row.duplicates} duplicates in spite of atomic=True")
            if row.order_breaks and in_order:
                wrong.append(f"{row.group} has {row.order_breaks} order breaks")
            if row.dead:
                wrong.append(f"{row.group} has {row.dead} dead letters")
        return wrong

    def __str__(self) -> str:
        head = ("group", "sent", "recorded", "missing", "duplicates", "order", "dead", "processes")
        lines: list[tuple[str, ...]] = [head]
        for r in self.rows:
            counts = (r.sent, r.recorded, r.missing, r.duplicates, r.order_breaks, r.dead)
            lines.append((r.group, *(f"{n:,}" for n in (*counts, r.processes))))
        table = "\n".join(
            "".join(cell.rjust(12) if i else cell.ljust(8) for i, cell in enumerate(line))
            for line in lines
        )
        return (
            f"{table}\nrecords {sum(r.recorded for r in self.rows):,}, {self.rate:,.0f}/s;"
            f" longest gap {self.longest_gap:.1f} s; audit: {len(self.findings)} findings"
        )


def groups() -> list[str]:
    """Those that play in this scenario."""
    return list(ConsumerGroup.objects.order_by("pk").values_list("name", flat=True))


def missing(group: str) -> int:
    """Messages that were committed and that the group has not recorded."""
    return int(_number(MISSING, group, GROUPS[group]))


def report() -> Report:
    span = Record.objects.aggregate(first=Min("at"), last=Max("at"))
    seconds = (span["last"] - span["first"]).total_seconds() if span["first"] else 0.0
    return Report(
        rows=[_row(group, GROUPS[group]) for group in groups()],
        findings=[str(finding) for finding in audit("default")],
        rate=Record.objects.count() / seconds if seconds else 0.0,
        longest_gap=_number(LONGEST_GAP),
    )


def _row(group: str, topic: str) -> Row:
    records = Record.objects.filter(group=group)
    recorded = records.count()
    return Row(
        group=group,
        sent=Sent.objects.filter(topic=topic, is_void=False).count(),
        recorded=recorded,
        missing=missing(group),
        duplicates=(records.aggregate(n=Sum("times"))["n"] or 0) - recorded,
        order_breaks=int(_number(ORDER_BREAKS, group)),
        dead=DeadMessage.objects.filter(group__name=group).count(),
        processes=records.values("process").distinct().count(),
    )


def _number(statement: str, *parameters: str) -> float:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return float(cursor.fetchone()[0])
