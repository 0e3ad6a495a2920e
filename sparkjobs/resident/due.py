"""Says whether the jobs of the night are due: archive and reconcile. It needs no pyspark."""

from __future__ import annotations

from datetime import datetime, time

from sparkjobs.config import MYSQL, SQLITE, Config
from sparkjobs.database import Connection, fetch, vendor_of
from sparkjobs.instants import instant, now, stored

# Times in UTC. A day is closed ten minutes after midnight. To reconcile reads everything, so it is
# done between two hours of the night or not at all.
ARCHIVE_AFTER = time(0, 15)
RECONCILE_AFTER, RECONCILE_BEFORE = time(2), time(6)


# A message of a day that is over, in a topic that is set to be archived: one look by ems_msg_log
# for each of its partitions.
NOT_ARCHIVED = {
    vendor: "SELECT 1 FROM `ems_partition` p JOIN `ems_topic` t ON t.`id` = p.`topic_id`"  # noqa: S608 - our words
    " WHERE t.`archive` = %s AND (SELECT m.`sequenced_at` FROM `ems_msg` m"
    f" WHERE m.`partition_id` = p.`id` AND m.`offset` >= {greatest}(p.`archived_offset`,"
    " p.`first_offset`) AND m.`offset` < p.`next_offset` ORDER BY m.`offset` LIMIT 1) < %s LIMIT 1"
    for vendor, greatest in ((MYSQL, "GREATEST"), (SQLITE, "MAX"))
}


def is_archive_due(config: Config, connection: Connection) -> bool:
    """Tell whether a message of a closed day is not archived that should be."""
    moment = now(connection)
    if not config.archive or moment.time() < ARCHIVE_AFTER:
        return False
    found = fetch(
        connection, NOT_ARCHIVED[vendor_of(connection)], [True, stored(_midnight(moment))]
    )
    return bool(found)


def is_reconcile_due(config: Config, connection: Connection) -> bool:
    """Tell whether it is night, and this night's of this namespace has not begun.

    The first roll-up comes before: the pages wait for it, and to reconcile takes long.
    """
    moment = now(connection)
    if not RECONCILE_AFTER <= moment.time() < RECONCILE_BEFORE:
        return False
    # The last one of its jobs has ended, well or not.
    if not fetch(
        connection,
        "SELECT 1 FROM `ems_monitoring_run` WHERE `job` = 'backlog'"
        " AND `state` <> 'running' LIMIT 1",
    ):
        return False
    rows = fetch(
        connection,
        "SELECT MAX(`started_at`) FROM `ems_monitoring_run` WHERE `job` = %s",
        [config.own("reconcile")],
    )
    last = instant(rows[0][0])
    return last is None or last < _midnight(moment)


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)
