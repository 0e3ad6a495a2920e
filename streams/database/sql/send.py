"""Holds the statements of a send, of its dedup key, and of a cancellation."""

from __future__ import annotations

from streams.database.sql.dialect import IMMEDIATE, LATER, MYSQL, NOW, SQLITE, for_each_vendor

# Inserts new rows into the inbox, without an offset. It locks only its own rows, so producers never
# wait for each other. due_at: see DUE_AT.
MESSAGE_COLUMNS = (
    "`partition_id`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`,"
    " `created_at`"
)
INSERT_MESSAGES = f"INSERT INTO `ems_msg` ({MESSAGE_COLUMNS}) VALUES "  # noqa: S608
DUE_IMMEDIATELY = f"'{IMMEDIATE}'"
# A message with a due time in the past is an immediate one: only those keep their order of sending.
DUE_AT = for_each_vendor("CASE WHEN %s <= {now} THEN {immediate} ELSE %s END")

# A body of at most this many bytes is written into the statement in hexadecimal, which needs no
# escaping by the driver and no unescaping by the server (a message of 1 KB: 4 µs and 3 µs less). A
# larger body is a parameter, since hexadecimal doubles its size.
HEX_BYTES = 64 * 1024


def message_values(
    vendor: str,
    partition_id: int,
    due_at: str,
    body: bytes,
    stored_type: str,
    size: int,
    producer: str,
    *,
    named: bool,
) -> str:
    """Return one row of INSERT_MESSAGES; ``due_at`` and ``producer`` are given as SQL.

    ``body`` and ``stored_type`` are what is stored, maybe compressed; ``size`` is that of the body
    as it was given.

    Its parameters are those of due_at; key, tag and headers if the message is ``named``, which
    means that it has any of them; the body if it is larger than HEX_BYTES; and that of producer.
    Other values are in the text, since each parameter costs a call into the driver.
    """
    names = "%s, %s, %s" if named else "NULL, '', NULL"
    value = f"x'{body.hex()}'" if len(body) <= HEX_BYTES else "%s"
    return (
        f"({partition_id:d}, {due_at}, {names}, {value}, '{stored_type}', {size:d},"
        f" {producer}, {NOW[vendor]})"
    )


# Find, lock and insert the row of a key, see dedup.py. Unique key: ems_dedup_key (topic, key_hash):
# with it, a lock is on one row and on no gap. A new row is kept for an hour, so that its sender can
# lock it. The hash is in the text in hexadecimal: as bytes, the statement could not be shown in the
# list of running ones (information_schema.INNODB_TRX fails on it).
_OF_DEDUP = " FROM `ems_dedup` WHERE `topic_id` = %s AND `key_hash` = x'HASH'"

_FIND_DEDUP = "SELECT 1" + _OF_DEDUP

_LOCK_DEDUP = for_each_vendor(
    "SELECT `id`, `message_id`, `partition`, `expires_at` > {now}" + _OF_DEDUP + " {lock}"
)

_INSERT_DEDUP = {
    vendor: (
        f"INSERT {ignore} INTO `ems_dedup`"  # noqa: S608
        f" (`topic_id`, `key_hash`, `partition`, `expires_at`) VALUES (%s, x'HASH', 0, {hour})"
    )
    for vendor, ignore, hour in (
        (MYSQL, "IGNORE", f"{NOW[MYSQL]} + INTERVAL 1 HOUR"),
        (SQLITE, "OR IGNORE", "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW', '+1 hour')"),
    )
}


def find_dedup(key_hash: bytes) -> str:
    return _FIND_DEDUP.replace("HASH", key_hash.hex())


def lock_dedup(vendor: str, key_hash: bytes) -> str:
    return _LOCK_DEDUP[vendor].replace("HASH", key_hash.hex())


def insert_dedup(vendor: str, key_hash: bytes) -> str:
    return _INSERT_DEDUP[vendor].replace("HASH", key_hash.hex())


TAKE_DEDUP = {
    vendor: (
        "UPDATE `ems_dedup` SET `message_id` = %s, `partition` = %s,"  # noqa: S608
        f" `expires_at` = {LATER[vendor]} WHERE `id` = %s"
    )
    for vendor in (MYSQL, SQLITE)
}

# A delayed message that is still in the inbox can be cancelled.
CANCELLABLE = f"`offset` IS NULL AND `due_at` > '{IMMEDIATE}'"

# Reads whether a message can be cancelled, the row of its dedup key, and its topic and partition. A
# plain read: it locks nothing. Indexes: the primary keys, and ems_dedup_message.
FIND_MESSAGE = (
    f"SELECT {CANCELLABLE}, d.`id`, t.`name`, p.`number` FROM `ems_msg` m"  # noqa: S608
    " LEFT JOIN `ems_dedup` d ON d.`message_id` = m.`id`"
    " LEFT JOIN `ems_partition` p ON p.`id` = m.`partition_id`"
    " LEFT JOIN `ems_topic` t ON t.`id` = p.`topic_id` WHERE m.`id` = %s"
)

_MESSAGE = "SELECT 1 FROM `ems_msg` WHERE `id` = %s"
LOCK_MESSAGE = {MYSQL: _MESSAGE + " FOR UPDATE", SQLITE: _MESSAGE}

# Finds the key that a message holds. A plain read. Index: ems_dedup_message.
FIND_DEDUP_OF_MESSAGE = "SELECT `id` FROM `ems_dedup` WHERE `message_id` = %s"

# Frees the key of a cancelled message. By primary key: by message_id, a caller's REPEATABLE READ
# would lock the gap beside it, into which the next messages with a key are written.
FREE_DEDUP = for_each_vendor(
    "UPDATE `ems_dedup` {primary} SET `message_id` = NULL WHERE `id` = %s AND `message_id` = %s"
)
