"""Holds the statements of groups ordered by key: what is held, and what is parked behind it."""

from __future__ import annotations

from streams.database.sql.dialect import LOCK, MYSQL, SQLITE, for_each_vendor, placeholders
from streams.database.sql.read import USE_LOG

_USE_KEYS = {MYSQL: "FORCE INDEX (ems_held_key_place)", SQLITE: ""}
_USE_PARKED = {MYSQL: "FORCE INDEX (ems_retry_key)", SQLITE: "INDEXED BY ems_retry_key"}

# Reads the keys of a stretch of the log. Index: ems_msg_log.
KEYS = {
    vendor: (
        f"SELECT `offset`, `key` FROM `ems_msg` {hint}"  # noqa: S608
        " WHERE `partition_id` = %s AND `offset` >= %s AND `offset` < %s ORDER BY `offset`"
    )
    for vendor, hint in USE_LOG.items()
}

# Tells whether a key of the partition is held. Index: ems_held_key_place.
ANY_HELD = "SELECT 1 FROM `ems_held_key` WHERE `group_id` = %s AND `partition_id` = %s LIMIT 1"
NONE_HELD = "UPDATE `ems_cursor` SET `has_held_keys` = 0 WHERE `id` = %s"

# Says on all cursors of a group in a partition that a key may be held from now on. Index:
# ems_cursor_place.
SOME_HELD = (
    "UPDATE `ems_cursor` SET `has_held_keys` = 1"
    " WHERE `group_id` = %s AND `partition_id` = %s AND `has_held_keys` = 0"
)


def held(vendor: str, hashes: int, *, lock: bool = False) -> str:
    """Return the statement that reads which of some ``hashes`` are held; it may lock their rows.

    Index: ems_held_key_place alone, in its order: so two who lock several keys do not deadlock,
    and no row of another key is locked.
    """
    return (
        f"SELECT `key_hash`, `head_offset`, `id`, `dead` FROM `ems_held_key` {_USE_KEYS[vendor]}"  # noqa: S608
        " WHERE `group_id` = %s AND `partition_id` = %s"
        f" AND `key_hash` IN ({placeholders(range(hashes))}) ORDER BY `key_hash`"
        f" {LOCK[vendor] if lock else ''}"
    )


# Holds a key that nobody holds. Who does has locked the cursors of the place, so there is no other.
HOLD = for_each_vendor(
    "INSERT INTO `ems_held_key` (`group_id`, `partition_id`, `key_hash`, `key`, `head_offset`,"
    " `dead`, `held_at`) VALUES (%s, %s, %s, %s, %s, %s, {now})"
)

# Locks the next message of a key, in the order of the log. Index: ems_retry_key alone.
NEXT_OF_KEY = {
    vendor: (
        f"SELECT `id`, `offset`, `due_at` FROM `ems_retry_msg` {hint}"  # noqa: S608
        " WHERE `group_id` = %s AND `partition_id` = %s AND `key_hash` = %s"
        f" ORDER BY `offset` LIMIT 1 {LOCK[vendor]}"
    )
    for vendor, hint in _USE_PARKED.items()
}
UNPARK = for_each_vendor("UPDATE `ems_retry_msg` SET `due_at` = {now} WHERE `id` = %s")
MOVE_HEAD = "UPDATE `ems_held_key` SET `head_offset` = %s, `dead` = 0 WHERE `id` = %s"
DEAD_HEAD = "UPDATE `ems_held_key` SET `dead` = %s WHERE `id` = %s"
FREE_KEY = "DELETE FROM `ems_held_key` WHERE `id` = %s"

# Finds held keys whose message is neither due nor held by a delivery, nor a dead letter that waits:
# nobody would let them go. Indexes: the primary key, and ems_retry_place, or ems_dead_place, once
# for each held key.
STUCK_KEYS = (
    "SELECT h.`id`, h.`group_id`, h.`partition_id`, h.`key_hash` FROM `ems_held_key` h"
    " LEFT JOIN `ems_retry_msg` r ON r.`group_id` = h.`group_id`"
    " AND r.`partition_id` = h.`partition_id` AND r.`offset` = h.`head_offset`"
    " AND r.`key_hash` = h.`key_hash` AND r.`due_at` IS NOT NULL"
    " WHERE r.`id` IS NULL AND NOT (h.`dead` AND EXISTS (SELECT 1 FROM `ems_dead_msg` d"
    " WHERE d.`group_id` = h.`group_id` AND d.`partition_id` = h.`partition_id`"
    " AND d.`offset` = h.`head_offset` AND d.`redriven_at` IS NULL)) ORDER BY h.`id` LIMIT %s"
)
