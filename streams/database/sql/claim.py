"""The statements of a claim, and of the look whether there is something to claim."""

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
    for_each_vendor,
    numbers,
)

# Of a cursor and its partition: there is something that it has not given out; a replay has a stop.
_BEHIND = "c.`next_offset` < {least}(p.`next_offset`, COALESCE(c.`stop_offset`, p.`next_offset`))"

# The cursors of a group that are behind, with what each needs to be claimed: its own and those of
# replays, which have a stop. A cursor of an ordered group is left while a delivery of it is open,
# or its next message waits for its time. Plain: it waits for nobody. Index: ems_cursor_place by
# group, then the partition by its key.
CURSORS_BEHIND = for_each_vendor(
    "SELECT c.`id`, c.`partition_id`, p.`number`, p.`next_offset`"  # noqa: S608
    " FROM `ems_cursor` c JOIN `ems_partition` p ON p.`id` = c.`partition_id`"
    " WHERE c.`group_id` = %s AND "
    + _BEHIND
    + " AND c.`open_delivery` IS NULL AND COALESCE(c.`blocked_until` <= {now}, 1)"
    " ORDER BY c.`partition_id`, c.`replay`"
)

# One cursor by its key. The lock is what makes a range of offsets one client's. The first form
# leaves a cursor that is being claimed from; the second queues up for it.
_CURSOR = (
    "SELECT `next_offset`, `stop_offset`, `replay`, `attempt`, `alone` FROM `ems_cursor`"
    " WHERE `id` = %s AND `open_delivery` IS NULL AND COALESCE(`blocked_until` <= {now}, 1)"
)

LOCK_FREE_CURSOR = for_each_vendor(_CURSOR + " {skip_locked}")

LOCK_CURSOR = for_each_vendor(_CURSOR + " {lock}")

PARTITION_END = "SELECT `next_offset` FROM `ems_partition` WHERE `id` = %s"

MOVE_CURSOR = "UPDATE `ems_cursor` SET `next_offset` = %s WHERE `id` = %s"

# Of an ordered group: nothing more is claimed from the cursor before this delivery has ended.
HOLD_CURSOR = "UPDATE `ems_cursor` SET `open_delivery` = %s WHERE `id` = %s"

# The delivery that covers what the cursor has passed, in the same transaction.
INSERT_DELIVERY = {
    vendor: (
        "INSERT INTO `ems_topic_group_log` (`group_id`, `partition_id`, `first_offset`,"  # noqa: S608
        " `last_offset`, `progress`, `kind`, `attempt`, `client_id`, `thread`, `token`, `state`,"
        " `claimed_at`, `deadline`, `failed`, `dead`, `missing`, `passed`, `error`) VALUES"
        f" (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, 'START', {NOW[vendor]}, {LATER[vendor]},"
        " 0, 0, 0, 0, '')"
    )
    for vendor in (MYSQL, SQLITE)
}

# Whether a retry is due, and the one that has been due for longest. Index: ems_retry_due alone,
# in its order: with a sort, a LIMIT 1 would lock all that match.
_DUE_RETRY = (
    " FROM `ems_retry_msg` WHERE `group_id` = %s AND `delivery_id` IS NULL AND `due_at` <= {now}"
)

ANY_DUE_RETRY = for_each_vendor("SELECT 1" + _DUE_RETRY + " LIMIT 1")

LOCK_DUE_RETRY = for_each_vendor(
    "SELECT `id`" + _DUE_RETRY + " ORDER BY `due_at` LIMIT 1 {skip_locked}"
)

# What a consumer process wants to know while it waits, in one statement: rows of (kind, id, value),
# where value is a partition's end, or the microseconds until something is due. Indexes:
# ems_msg_inbox and ems_retry_due, one jump a partition or group (a loose index scan, which needs
# the MIN), so what is due later costs nothing, however much it is; ems_cursor_place.
INBOX, BEHIND, RETRY, END = "inbox", "behind", "retry", "end"

UNTIL = {
    MYSQL: "TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), {0})",
    SQLITE: "CAST((JULIANDAY({0}) - JULIANDAY('NOW')) * 86400000000 AS INTEGER)",
}


def due(vendor: str, partitions: Iterable[int], groups: Iterable[int]) -> str:
    ids, of = numbers(partitions), numbers(groups) or "0"

    def until(column: str) -> str:
        return UNTIL[vendor].format(column)

    parts = (
        f"SELECT '{INBOX}', `partition_id`, {until('MIN(`due_at`)')}"  # noqa: S608
        f" FROM `ems_msg` {USE_INBOX[vendor]} WHERE `partition_id` IN ({ids})"
        f" AND `offset` IS NULL AND `due_at` >= '{IMMEDIATE}' GROUP BY `partition_id`",
        f"SELECT '{BEHIND}', c.`group_id`, MIN(COALESCE({until('c.`blocked_until`')}, 0))"  # noqa: S608
        f" FROM `ems_cursor` c JOIN `ems_partition` p ON p.`id` = c.`partition_id`"
        f" WHERE c.`group_id` IN ({of}) AND c.`open_delivery` IS NULL"
        f" AND {_BEHIND.format(least=LEAST[vendor])}"
        " GROUP BY c.`group_id`",
        f"SELECT '{RETRY}', `group_id`, {until('MIN(`due_at`)')}"  # noqa: S608
        f" FROM `ems_retry_msg` WHERE `group_id` IN ({of}) AND `delivery_id` IS NULL"
        " GROUP BY `group_id`",
        f"SELECT '{END}', `id`, `next_offset` FROM `ems_partition` WHERE `id` IN ({ids})",  # noqa: S608
    )
    return " UNION ALL ".join(parts)


# The groups that have a retry to claim. The MIN lets the server jump from group to group in
# ems_retry_due; as EXISTS it would step over all retries that wait for their time.
GROUPS_WITH_DUE_RETRIES = {
    vendor: (
        "SELECT `group_id`, MIN(`due_at`) FROM `ems_retry_msg` WHERE `group_id` IN (%s)"  # noqa: S608
        f" AND `delivery_id` IS NULL AND `due_at` <= {NOW[vendor].replace('%', '%%')}"
        " GROUP BY `group_id`"
    )
    for vendor in (MYSQL, SQLITE)
}
