"""Holds the statements of a claim, and of the look whether there is something to claim."""

from __future__ import annotations

from collections.abc import Iterable

from streams.database.sql.dialect import (
    IMMEDIATE,
    LATER,
    LEAST,
    MYSQL,
    NOW,
    SQLITE,
    USE_INBOX,
    USE_OPEN,
    for_each_vendor,
    lists,
    numbers,
)

# Of a cursor and its partition: there is something that it has not given out; a replay has a stop.
_BEHIND = "c.`next_offset` < {least}(p.`next_offset`, COALESCE(c.`stop_offset`, p.`next_offset`))"

# Reads the cursors of a group that are behind, and what a claim needs of each: its own cursors and
# those of replays, which have a stop. A cursor of an ordered group is left out while a delivery of
# it is open, or its next message waits for its due time. A plain read: it waits for no lock. Index:
# ems_cursor_place by group, then the partition by its key.
CURSORS_BEHIND = for_each_vendor(
    "SELECT c.`id`, c.`partition_id`, p.`number`, p.`next_offset`"  # noqa: S608
    " FROM `ems_cursor` c JOIN `ems_partition` p ON p.`id` = c.`partition_id`"
    " WHERE c.`group_id` = %s AND "
    + _BEHIND
    + " AND c.`open_delivery` IS NULL AND COALESCE(c.`blocked_until` <= {now}, 1)"
    " ORDER BY c.`partition_id`, c.`replay`"
)

# Reads the cursors of a group in the form of CURSORS_BEHIND, without those of replays. Index:
# ems_cursor_place.
OWN_CURSORS = (
    "SELECT c.`id`, c.`partition_id`, p.`number`, p.`next_offset` FROM `ems_cursor` c"
    " JOIN `ems_partition` p ON p.`id` = c.`partition_id`"
    " WHERE c.`group_id` = %s AND c.`replay` = 0"
)

# Locks one cursor by its key, and reads the end of its partition. The lock guarantees that only one
# client claims a range of offsets. The first form skips a cursor that another transaction has
# locked; the second waits for it. The subqueries take no lock, so they wait for no sequencer.
_CURSOR = (
    "SELECT c.`next_offset`, c.`stop_offset`, c.`replay`, c.`attempt`, c.`alone`,"
    " (SELECT p.`next_offset` FROM `ems_partition` p WHERE p.`id` = c.`partition_id`),"
    " (SELECT p.`epoch` FROM `ems_partition` p WHERE p.`id` = c.`partition_id`),"
    " c.`has_held_keys`"
    " FROM `ems_cursor` c WHERE c.`id` = %s AND c.`open_delivery` IS NULL"
    " AND COALESCE(c.`blocked_until` <= {now}, 1)"
)

LOCK_FREE_CURSOR = for_each_vendor(_CURSOR + " {skip_locked}")
LOCK_CURSOR = for_each_vendor(_CURSOR + " {lock}")

PARTITION_END = "SELECT `next_offset`, `epoch` FROM `ems_partition` WHERE `id` = %s"

MOVE_CURSOR = "UPDATE `ems_cursor` SET `next_offset` = %s WHERE `id` = %s"

# Holds the cursor of an ordered group: nothing is claimed from it before this delivery has ended.
HOLD_CURSOR = "UPDATE `ems_cursor` SET `open_delivery` = %s WHERE `id` = %s"

# Writes the delivery that covers what the cursor has passed, in the same transaction.
INSERT_DELIVERY = {
    vendor: (
        "INSERT INTO `ems_topic_group_log` (`group_id`, `partition_id`, `first_offset`,"  # noqa: S608
        " `last_offset`, `progress`, `kind`, `attempt`, `client_id`, `thread`, `token`, `state`,"
        " `claimed_at`, `deadline`, `failed`, `dead`, `missing`, `passed`, `error`, `parked`)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, 'START',"
        f" {NOW[vendor]}, {LATER[vendor]}, 0, 0, 0, 0, '', %s)"
    )
    for vendor in (MYSQL, SQLITE)
}

# Tells whether a retry is due; locks the one that has been due the longest. Index: ems_retry_due
# alone, in its order: with a sort, a LIMIT 1 would lock all rows that match.
_DUE_RETRY = (
    " FROM `ems_retry_msg` WHERE `group_id` = %s AND `delivery_id` IS NULL AND `due_at` <= {now}"
)

ANY_DUE_RETRY = for_each_vendor("SELECT 1" + _DUE_RETRY + " LIMIT 1")
LOCK_DUE_RETRY = for_each_vendor(
    "SELECT `id`" + _DUE_RETRY + " ORDER BY `due_at` LIMIT 1 {skip_locked}"
)

# Finds ranges that a process has claimed and given back, the oldest first. Of the open deliveries
# only these have no token. Index: ems_log_open, whose entries up to now are these and expired ones.
GIVEN_BACK = for_each_vendor(
    "SELECT d.`id`, d.`partition_id` FROM `ems_topic_group_log` d {open} WHERE d.`state` = 'START'"
    " AND d.`deadline` <= {now} AND d.`group_id` = %s AND d.`token` = ''"
    " ORDER BY d.`deadline`, d.`id` LIMIT 16"
)

# Takes the first part of such a range away, or all of it.
CUT_GIVEN_BACK = (
    "UPDATE `ems_topic_group_log` SET `first_offset` = %s, `progress` = %s WHERE `id` = %s"
)
DELETE_GIVEN_BACK = "DELETE FROM `ems_topic_group_log` WHERE `id` = %s"

# Reads what a waiting consumer process needs, in one statement: rows of (kind, id, value, epoch),
# where value is a partition's end, or the microseconds until something is due. Indexes:
# ems_msg_inbox and ems_retry_due, one entry for each partition or group (a loose index scan, which
# needs the MIN), so the number of rows that are due later does not matter; ems_cursor_place.
INBOX, BEHIND, RETRY, GIVEN, END = "inbox", "behind", "retry", "given", "end"

UNTIL = {
    MYSQL: "TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), {0})",
    SQLITE: "CAST((JULIANDAY({0}) - JULIANDAY('NOW')) * 86400000000 AS INTEGER)",
}


def due(vendor: str, partitions: Iterable[int], groups: Iterable[int]) -> str:
    places, of = lists(partitions), numbers(groups) or "0"

    def until(column: str) -> str:
        return UNTIL[vendor].format(column)

    inbox = (
        f"SELECT '{INBOX}', `partition_id`, {until('MIN(`due_at`)')}, 0"  # noqa: S608
        f" FROM `ems_msg` {USE_INBOX[vendor]} WHERE `partition_id` IN ({ids})"
        f" AND `offset` IS NULL AND `due_at` >= '{IMMEDIATE}' GROUP BY `partition_id`"
        for ids in places
    )
    of_groups = (
        f"SELECT '{BEHIND}', c.`group_id`, MIN(COALESCE({until('c.`blocked_until`')}, 0)), 0"  # noqa: S608
        f" FROM `ems_cursor` c JOIN `ems_partition` p ON p.`id` = c.`partition_id`"
        f" WHERE c.`group_id` IN ({of}) AND c.`open_delivery` IS NULL"
        f" AND {_BEHIND.format(least=LEAST[vendor])}"
        " GROUP BY c.`group_id`",
        f"SELECT '{RETRY}', `group_id`, {until('MIN(`due_at`)')}, 0"  # noqa: S608
        f" FROM `ems_retry_msg` WHERE `group_id` IN ({of}) AND `delivery_id` IS NULL"
        " AND `due_at` IS NOT NULL GROUP BY `group_id`",
        f"SELECT '{GIVEN}', d.`group_id`, 0, 0"  # noqa: S608
        f" FROM `ems_topic_group_log` d {USE_OPEN[vendor]} WHERE d.`state` = 'START'"
        f" AND d.`deadline` <= {NOW[vendor]} AND d.`group_id` IN ({of}) AND d.`token` = ''",
    )
    ends = (
        f"SELECT '{END}', `id`, `next_offset`, `epoch` FROM `ems_partition`"  # noqa: S608
        f" WHERE `id` IN ({ids})"
        for ids in places
    )
    return " UNION ALL ".join((*inbox, *of_groups, *ends))


# Finds the groups that have a retry to claim. The MIN lets the server read one entry for each group
# in ems_retry_due; as EXISTS it would read all retries that are not due yet.
GROUPS_WITH_DUE_RETRIES = {
    vendor: (
        "SELECT `group_id`, MIN(`due_at`) FROM `ems_retry_msg` WHERE `group_id` IN (%s)"  # noqa: S608
        f" AND `delivery_id` IS NULL AND `due_at` <= {NOW[vendor].replace('%', '%%')}"
        " GROUP BY `group_id`"
    )
    for vendor in (MYSQL, SQLITE)
}
