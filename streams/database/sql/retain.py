"""Holds the statements of the purge."""

from __future__ import annotations

from streams.database.sql.dialect import MYSQL, SQLITE, USE_INBOX, for_each_vendor
from streams.database.sql.read import USE_LOG

# Reads what each group of a topic still needs of one partition: for each cursor (a replay has its
# own), the next offset to be claimed, the first that is not settled in an open delivery, and the
# first that waits to be retried. One statement, so one snapshot: a claim moves the cursor and opens
# the delivery in one transaction, and two reads could see neither. A redriven message, and a retry
# below first_offset, has its body in the dead letter. Parameters: partition, first_offset,
# partition, first_offset, partition, topic. Indexes: ems_group_name, ems_cursor_place; ems_log_open
# and ems_retry_place once for each cursor.
HOLDERS = for_each_vendor(
    "SELECT g.`id`, c.`id`, c.`replay`,"
    " CASE WHEN c.`stop_offset` IS NULL OR c.`next_offset` < c.`stop_offset`"
    " THEN c.`next_offset` END,"
    " (SELECT MIN(d.`progress`) FROM `ems_topic_group_log` d {open} WHERE d.`state` = 'START'"
    " AND d.`group_id` = g.`id` AND d.`partition_id` = %s AND d.`progress` >= %s),"
    " (SELECT r.`offset` FROM `ems_retry_msg` r {retries} WHERE r.`group_id` = g.`id`"
    " AND r.`partition_id` = %s AND r.`offset` >= %s AND r.`dead_letter_id` IS NULL"
    " ORDER BY r.`group_id`, r.`partition_id`, r.`offset` LIMIT 1)"
    " FROM `ems_group` g"
    " LEFT JOIN `ems_cursor` c ON c.`group_id` = g.`id` AND c.`partition_id` = %s"
    " WHERE g.`topic_id` = %s"
)

# Reads the next messages of a partition below its first_offset. Index: ems_msg_log alone. It begins
# where the last batch ended: from 0, it would read all entries that are marked as deleted.
_PURGED = {
    vendor: (
        f"SELECT `id`, `offset` FROM `ems_msg` {hint}"  # noqa: S608
        " WHERE `partition_id` = %s AND `offset` >= %s AND `offset` < %s"
        " ORDER BY `offset` LIMIT %s"
    )
    for vendor, hint in USE_LOG.items()
}

# Deletes the messages of a range of offsets below first_offset. They are in the log, so never in
# the inbox. Index: ems_msg_log, whose entries and rows it locks, and no others: at READ COMMITTED
# without the gaps. By their ids it would need each of them, and go to each from the root.
_PURGE = {
    MYSQL: (
        f"DELETE `ems_msg` FROM `ems_msg` {USE_LOG[MYSQL]}"
        " WHERE `partition_id` = %s AND `offset` >= %s AND `offset` < %s"
    ),
    SQLITE: (
        f"DELETE FROM `ems_msg` {USE_LOG[SQLITE]}"  # noqa: S608
        " WHERE `partition_id` = %s AND `offset` >= %s AND `offset` < %s"
    ),
}


def _of_keys(statements: dict[str, str]) -> dict[str, str]:
    """Return the same of the index of keys. Index: ems_key_place."""
    return {
        vendor: statement.replace("`ems_msg`", "`ems_key`").replace("ems_msg_log", "ems_key_place")
        for vendor, statement in statements.items()
    }


# By table and vendor.
PURGED = {"ems_msg": _PURGED, "ems_key": _of_keys(_PURGED)}
PURGE = {"ems_msg": _PURGE, "ems_key": _of_keys(_PURGE)}

# Counts the messages in the inbox of a partition. It fails at once at a row that another
# transaction has locked, so it also notices messages of open transactions. Index: ems_msg_inbox.
COUNT_INBOX = {
    vendor: (
        f"SELECT COUNT(*) FROM `ems_msg` {hint} WHERE `partition_id` = %s AND `offset` IS NULL"  # noqa: S608
        + (" FOR UPDATE NOWAIT" if vendor == MYSQL else "")
    )
    for vendor, hint in USE_INBOX.items()
}
