"""Compares the roll-ups with plain SQL over the same rows, when nothing is in motion any more."""

from __future__ import annotations

from typing import Any

from django.db import connection

# Title: what the tables of EMS hold by minute, and what the roll-ups say.
BY_HAND = {
    "traffic": (
        "SELECT partition_id, DATE_FORMAT(sequenced_at, '%Y-%m-%d %H:%i') AS m, COUNT(*),"
        " SUM(size), COUNT(DISTINCT `key`) FROM ems_msg WHERE `offset` IS NOT NULL"
        " GROUP BY partition_id, m",
        "SELECT partition_id, DATE_FORMAT(minute, '%Y-%m-%d %H:%i') AS m, SUM(messages),"
        " SUM(bytes), SUM(`keys`) FROM ems_monitoring_traffic GROUP BY partition_id, m",
    ),
    "consumption": (
        "SELECT group_id, DATE_FORMAT(finished_at, '%Y-%m-%d %H:%i') AS m, client_id, thread,"
        " COUNT(*), SUM(GREATEST(progress - first_offset - failed - missing - passed, 0)),"
        " SUM(failed), SUM(dead) FROM ems_topic_group_log"
        " WHERE finished_at IS NOT NULL AND state IN ('DONE', 'RETRY', 'RELEASED')"
        " GROUP BY group_id, m, client_id, thread",
        "SELECT group_id, DATE_FORMAT(minute, '%Y-%m-%d %H:%i') AS m, client_id, thread,"
        " SUM(deliveries), SUM(consumed), SUM(failed), SUM(dead)"
        " FROM ems_monitoring_consumption GROUP BY group_id, m, client_id, thread",
    ),
}
SHOWN = 5


def differences() -> list[str]:
    """Return what differs between the roll-ups and the same counted by hand, in words."""
    found = []
    for title, statements in BY_HAND.items():
        by_hand, rolled_up = (_rows(statement) for statement in statements)
        for row in sorted(by_hand ^ rolled_up)[:SHOWN]:
            side = "by hand" if row in by_hand else "rolled up"
            found.append(f"{title}: only {side}: {row}")
        if not by_hand:
            found.append(f"{title}: there is nothing")
    return found


def minutes() -> int:
    """Return how many minutes of traffic are rolled up."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(DISTINCT minute) FROM ems_monitoring_traffic")
        return int(cursor.fetchone()[0])


def _rows(statement: str) -> set[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement.replace("%", "%%"), [])
        return {tuple(map(str, row)) for row in cursor.fetchall()}
