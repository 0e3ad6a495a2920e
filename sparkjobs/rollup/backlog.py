"""Adds up the samples that EMS takes of each group to hours and days: how far behind it was.

The samples are the only history of the backlog. No message is read for it, so no Spark is needed.
An hour without a sample has no row: it is unknown, not 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from sparkjobs.database import Connection, fetch
from sparkjobs.instants import hour_of, instant, stored
from sparkjobs.rollup.levels import DAY, HOUR
from sparkjobs.rollup.runs import last_done
from sparkjobs.rollup.tables import BACKLOG, Row, upsert

JOB = "backlog"
# A sample may be committed this much later than its minute says.
LATE = timedelta(minutes=5)
# One window is so long at most.
LONGEST = timedelta(days=7)

# All grains of monitoring/sample/grain.py, since the index begins with the grain
# (ems_sample_group_minute). The first sample of all has the longest one.
OF_SAMPLES = (
    "SELECT `group_id`, COUNT(*), MAX(`behind`), MIN(`behind`), MAX(`waiting`), MAX(`dead`),"
    " MAX(`age_seconds`) FROM `ems_monitoring_sample_group` WHERE `grain` IN (360, 60, 5, 1)"
    " AND `minute` >= %s AND `minute` < %s GROUP BY `group_id`"
)
OF_HOURS = (
    "SELECT `group_id`, SUM(`samples`), MAX(`behind`), MIN(`least`), MAX(`waiting`), MAX(`dead`),"
    " MAX(`age_seconds`) FROM `ems_monitoring_backlog_level` WHERE `grain` = 60"
    " AND `start` >= %s AND `start` < %s GROUP BY `group_id`"
)
FIRST = "SELECT MIN(`minute`) FROM `ems_monitoring_sample_group` WHERE `grain` = 360"


def stretches(connection: Connection, until: datetime) -> list[tuple[datetime, datetime]]:
    """Return the times that may hold samples that are not added up yet; at least one."""
    if last := last_done(connection, JOB, "until"):
        since = hour_of(last - LATE)
    else:
        ((first,),) = fetch(connection, FIRST)
        since = hour_of(instant(first) or until)
    found: list[tuple[datetime, datetime]] = []
    while not found or since < until:
        end = min(until, since + LONGEST)
        found.append((since, end))
        since = end
    return found


def hours(connection: Connection, since: datetime, until: datetime) -> list[Row]:
    """Return the rows of the hours of this time."""
    return list(_rows(connection, OF_SAMPLES, HOUR, hour_of(since), until))


def add_up_days(connection: Connection, since: datetime, until: datetime) -> None:
    """Add up the days of this time from their hours, inside the caller's transaction."""
    rows = _rows(connection, OF_HOURS, DAY, hour_of(since).replace(hour=0), until)
    upsert(connection, BACKLOG, list(rows))


def _rows(
    connection: Connection, statement: str, grain: int, start: datetime, until: datetime
) -> Iterator[Row]:
    while start < until:
        end = start + timedelta(minutes=grain)
        for group_id, *figures in fetch(connection, statement, [stored(start), stored(end)]):
            named = dict(zip(BACKLOG.figures, figures, strict=True))
            yield {"grain": grain, "start": start, "group_id": group_id, **named}
        start = end
