"""Holds the statements that read messages of the log."""

from __future__ import annotations

from streams.database.sql.dialect import MYSQL, SQLITE

# Read the sizes and the bodies of a claimed range. Index: ems_msg_log (partition, offset). Headers
# are stored in ASCII, so SQLite's LENGTH is in bytes too.
USE_LOG = {MYSQL: "FORCE INDEX (ems_msg_log)", SQLITE: ""}  # SQLite names unique indexes itself

_BYTES = "`size` + COALESCE(LENGTH(`headers`), 0)"

SIZES = {
    vendor: (
        f"SELECT `offset`, {_BYTES} FROM `ems_msg` {hint}"  # noqa: S608
        " WHERE `partition_id` = %s AND `offset` >= %s AND `offset` < %s ORDER BY `offset`"
    )
    for vendor, hint in USE_LOG.items()
}

# As text: a driver takes longer to make a datetime than to read the rest of a message.
_TEXT = {MYSQL: "CAST(`{0}` AS CHAR)", SQLITE: "`{0}`"}

# The first two parameters are how many bytes a message may have: of a larger one, body and headers
# are left out.
BODIES = {
    vendor: (
        f"SELECT `offset`, `id`, `key`, `tag`, CASE WHEN {_BYTES} <= %s THEN `headers` END,"  # noqa: S608
        f" {_BYTES}, `size`, `producer`,"
        f" {_TEXT[vendor].format('created_at')}, {_TEXT[vendor].format('sequenced_at')},"
        f" `body_type`, CASE WHEN {_BYTES} <= %s THEN `body` END FROM `ems_msg` {hint}"
        " WHERE `partition_id` = %s AND `offset` >= %s AND `offset` < %s ORDER BY `offset`"
    )
    for vendor, hint in USE_LOG.items()
}

# The same as BODIES by a locking read: a proxy sends it to the primary, and it sees what is
# committed now.
BODIES_ON_PRIMARY = {
    vendor: BODIES[vendor] + (" FOR UPDATE" if vendor == MYSQL else "") for vendor in BODIES
}

# Reads the dead letter's own copy of a redriven message. When it was sequenced only the log knows,
# if it has not been purged. Index: ems_msg_log.
BODY_OF_DEAD = (
    "SELECT d.`offset`, d.`message_id`, d.`key`, d.`tag`, d.`headers`, d.`size`, d.`size`,"
    " d.`producer`, d.`sent_at`, m.`sequenced_at`, d.`body_type`, d.`body` FROM `ems_dead_msg` d"
    " LEFT JOIN `ems_msg` m ON m.`partition_id` = d.`partition_id` AND m.`offset` = d.`offset`"
    " WHERE d.`id` = %s"
)
