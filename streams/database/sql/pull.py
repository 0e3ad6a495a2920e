"""Holds the statements of clients that pull over HTTP; they claim as consumers do."""

from __future__ import annotations

from streams.database.sql.dialect import LATER, MYSQL, NOW, SQLITE, for_each_vendor

# Writes the lease of a client that has no process of EMS, or lengthens it. Unique key:
# ems_client_group.
_ON_DUPLICATE = {
    MYSQL: "ON DUPLICATE KEY UPDATE `lease_until` = GREATEST(`lease_until`, VALUES(`lease_until`))",
    SQLITE: (
        "ON CONFLICT (`client_id`, `group_id`) DO UPDATE SET"
        " `lease_until` = MAX(`ems_client`.`lease_until`, excluded.`lease_until`)"
    ),
}
UPSERT_CLIENT = {
    vendor: (
        "INSERT INTO `ems_client` (`client_id`, `group_id`, `lease_until`, `started_at`)"  # noqa: S608
        f" VALUES (%s, %s, {LATER[vendor]}, {NOW[vendor]}) {_ON_DUPLICATE[vendor]}"
    )
    for vendor in (MYSQL, SQLITE)
}

# Tells whether a client holds a message that runs alone, beside the deliveries of ``ids``. Indexes:
# ems_retry_due, of the retries of the group that are held, and ems_cursor_place; then the primary
# key.
_HOLDS_ALONE = (
    "EXISTS ("
    "SELECT 1 FROM `ems_retry_msg` r JOIN `ems_topic_group_log` d ON d.`id` = r.`delivery_id`"
    " WHERE r.`group_id` = %s AND r.`delivery_id` IS NOT NULL AND r.`alone`"
    " AND d.`state` = 'START' AND d.`client_id` = %s AND d.`id` NOT IN ({ids})"
    " UNION ALL"
    " SELECT 1 FROM `ems_cursor` c JOIN `ems_topic_group_log` d ON d.`id` = c.`open_delivery`"
    " WHERE c.`group_id` = %s AND c.`alone` AND d.`state` = 'START' AND d.`client_id` = %s"
    " AND d.`id` NOT IN ({ids}))"
)
HOLDS_ALONE = "SELECT " + _HOLDS_ALONE.format(ids="0")

# Reads the delivery of a receipt, by its key, and the clock. As a statement of its own: each
# request that settles something begins with it.
RECEIPT_COLUMNS = (
    *("id", "group_id", "partition_id", "first_offset", "last_offset", "progress", "kind"),
    *("attempt", "client_id", "token", "state", "failed", "missing", "errors", "parked"),
    "settled",
)
OF_RECEIPT = for_each_vendor(
    f"SELECT {', '.join(f'`{name}`' for name in RECEIPT_COLUMNS)}, `claimed_at`, {{now}}"  # noqa: S608
    " FROM `ems_topic_group_log` WHERE `id` = %s AND `token` = %s"
)

# Reads the deadlines of deliveries that are still held, by their keys, and whether the lease of
# their client lasts as long (None without a lease), and whether it holds another that runs alone.
DEADLINES = (
    "SELECT d.`id`, d.`deadline`, (SELECT c.`lease_until` >= d.`deadline` FROM `ems_client` c"  # noqa: S608
    f" WHERE c.`client_id` = %s AND c.`group_id` = %s), {_HOLDS_ALONE}"
    " FROM `ems_topic_group_log` d"
    " WHERE d.`id` IN ({ids}) AND d.`state` = 'START' AND d.`token` <> ''"
)

# Find what a client holds: what a request with an id got before, and all of it. Index:
# ems_log_open, whose open entries are few; by ems_log_place all deliveries of the group would be
# read.
_HELD = (
    "SELECT d.`id` FROM `ems_topic_group_log` d {open} WHERE d.`state` = 'START'"
    " AND d.`group_id` = %s"
)
HANDED_BEFORE = for_each_vendor(
    _HELD + " AND d.`token` = %s AND d.`client_id` = %s AND d.`deadline` > {now}"
)
HELD_BY_CLIENT = for_each_vendor(_HELD + " AND d.`client_id` = %s AND d.`token` <> ''")
