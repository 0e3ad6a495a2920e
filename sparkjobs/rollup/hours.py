"""Decides of which hours the hot keys are counted, from what the traffic has counted.

To rank the keys of an hour all of its messages have to be read. Read each minute, these would be
thirty times the messages of the hour. So while an hour goes on, it is read when it has grown by a
quarter, which is five times its messages in all; and once more when it is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from sparkjobs.config import MYSQL, SQLITE
from sparkjobs.database import Connection, fetch, vendor_of
from sparkjobs.instants import instant, stored
from sparkjobs.rollup.offsets import Span

# In messages: a topic with no more in an hour is counted by each run.
FEW = 5000
GROWTH = 1.25

HOUR = {
    MYSQL: "DATE_FORMAT(x.`minute`, '%%Y-%%m-%%d %%H:00:00')",
    SQLITE: "SUBSTR(x.`minute`, 1, 13) || ':00:00'",
}


@dataclass
class Hour:
    """What the traffic knows of a topic and hour, and what the hot keys rest on."""

    topic_id: int
    hour: datetime
    ranked: int = 0  # messages that were counted for the places that are there
    messages: int = 0  # messages of the log, without those that have been purged
    keys: int = 0
    spans: dict[int, Span] = field(default_factory=dict)  # of each partition

    def is_due(self, current: datetime) -> bool:
        if not self.keys or self.messages <= self.ranked:
            return False
        is_over = self.hour < current
        return is_over or self.messages <= FEW or self.messages >= self.ranked * GROWTH


def counted_until(connection: Connection) -> datetime | None:
    """Return the last minute that the traffic has counted."""
    ((minute,),) = fetch(connection, "SELECT MAX(`minute`) FROM `ems_monitoring_traffic`")
    return instant(minute)


def hours(connection: Connection, since: datetime) -> list[Hour]:
    """Return the hours from ``since`` on; indexes: ems_traffic_minute, ems_hot_key_hour."""
    found: dict[tuple[int, datetime], Hour] = {}
    rows = fetch(
        connection,
        "SELECT p.`topic_id`, x.`partition_id`, p.`first_offset`,"  # noqa: S608 - our expression
        f" {HOUR[vendor_of(connection)]} AS `hour`, MIN(x.`first_offset`), MAX(x.`end_offset`),"
        " SUM(x.`messages`), SUM(x.`keys`)"
        " FROM `ems_monitoring_traffic` x JOIN `ems_partition` p ON p.`id` = x.`partition_id`"
        " WHERE x.`minute` >= %s"
        " GROUP BY p.`topic_id`, x.`partition_id`, p.`first_offset`, `hour`",
        [stored(since)],
    )
    for topic_id, partition_id, floor, hour, first, end, messages, keys in rows:
        at = instant(datetime.fromisoformat(hour))
        assert at is not None  # noqa: S101
        of_hour = found.setdefault((topic_id, at), Hour(topic_id, at))
        left = int(messages) if floor <= first else min(int(messages), max(0, end - floor))
        of_hour.messages += left
        of_hour.keys += int(keys)
        if left:
            of_hour.spans[partition_id] = max(first, floor), end
    for topic_id, hour, total in fetch(
        connection,
        "SELECT `topic_id`, `hour`, MAX(`total`) FROM `ems_monitoring_hot_key`"
        " WHERE `hour` >= %s GROUP BY `topic_id`, `hour`",
        [stored(since)],
    ):
        if there := found.get((topic_id, instant(hour) or since)):
            there.ranked = int(total)
    return list(found.values())


def due(found: Iterable[Hour], current: datetime) -> list[Hour]:
    """Return those that are to be counted."""
    return [hour for hour in found if hour.is_due(current)]


def spans(counted: Iterable[Hour]) -> dict[int, list[Span]]:
    """Return the offsets of these hours, as one span of each partition."""
    bounds: dict[int, Span] = {}
    for hour in counted:
        for partition_id, (first, end) in hour.spans.items():
            low, high = bounds.get(partition_id, (first, end))
            bounds[partition_id] = min(low, first), max(high, end)
    return {partition_id: [span] for partition_id, span in bounds.items()}
