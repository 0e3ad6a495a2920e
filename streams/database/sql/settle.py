"""Holds the statements that record an outcome: of deliveries, retries and dead letters."""

from __future__ import annotations

from collections.abc import Sequence

from streams.database.sql.dialect import (
    GREATEST,
    IF,
    LATER,
    LEAST,
    MYSQL,
    NOW,
    SQLITE,
    for_each_vendor,
    numbers,
)

# Records the outcome of a delivery's offsets below the new progress, and its end when that is past
# the last offset. By primary key, and only while the token is held and both offsets are what its
# holder wrote last. started_at is given as the time since the first call began, so that the start
# needs no statement of its own.
SETTLE_DELIVERY = {
    vendor: (
        "UPDATE `ems_topic_group_log` SET `progress` = %s, `last_offset` = %s, `state` = %s,"  # noqa: S608
        " `failed` = `failed` + %s, `missing` = `missing` + %s, `passed` = `passed` + %s,"
        " `error` = COALESCE(%s, `error`), `errors` = COALESCE(%s, `errors`),"
        f" `started_at` = COALESCE(`started_at`, {LATER[vendor]}),"
        f" `finished_at` = CASE WHEN %s THEN {NOW[vendor]} END"
        " WHERE `id` = %s AND `token` = %s AND `state` = 'START' AND `progress` = %s"
        " AND `last_offset` = %s"
    )
    for vendor in (MYSQL, SQLITE)
}


def settle_any_order(vendor: str, ids: Sequence[int], ended: Sequence[int]) -> str:
    """Return the statement that records what is settled, in any order, of deliveries ``ids``.

    ``ended`` are those of which nothing is left. By primary key, and of each only while the token
    is held and what was settled before is what its holder wrote last. The parameters: ``settled``
    of all, ``progress`` of all, the time since it was handed over of those that have ended, and of
    each its token, last offset and the bits before.
    """

    def of_each(value: str, which: Sequence[int]) -> str:
        return "CASE `id` " + " ".join(f"WHEN {pk:d} THEN {value}" for pk in which) + " END"

    end = ""
    if ended:
        start = of_each(LATER[vendor], ended)
        end = (
            f", `state` = CASE WHEN `id` IN ({numbers(ended)}) THEN 'DONE' ELSE `state` END"
            f", `started_at` = COALESCE(`started_at`, {start})"
            f", `finished_at` = CASE WHEN `id` IN ({numbers(ended)}) THEN {NOW[vendor]} END"
        )
    guard = of_each("`token` = %s AND `last_offset` = %s AND COALESCE(`settled`, 0) = %s", ids)
    return (
        f"UPDATE `ems_topic_group_log` SET `settled` = {of_each('%s', ids)},"  # noqa: S608
        f" `progress` = {of_each('%s', ids)}{end}"
        f" WHERE `id` IN ({numbers(ids)}) AND `state` = 'START' AND {guard}"
    )


# Writes offsets that a group must see again. A waiting row keeps the higher attempt and the earlier
# due_at, or stays parked, without one; a row that a delivery holds is marked `again`, so that the
# end of the delivery does not delete it. Unique key: ems_retry_place (group, partition, offset).
RETRY_COLUMNS = (
    "`group_id`, `partition_id`, `offset`, `attempt`, `due_at`, `alone`, `again`, `last_error`,"
    " `key_hash`"
)

_ON_DUPLICATE = {
    MYSQL: "ON DUPLICATE KEY UPDATE",
    SQLITE: "ON CONFLICT (`group_id`, `partition_id`, `offset`) DO UPDATE SET",
}

_NEW_VALUE = {MYSQL: "VALUES(`{0}`)", SQLITE: "excluded.`{0}`"}


def upsert_retries(vendor: str, rows: int) -> str:
    """Return the statement that inserts ``rows`` retry rows, or merges them into existing ones."""
    value = f"(%s, %s, %s, %s, {LATER[vendor]}, %s, 0, %s, %s)"
    waiting = (
        "`ems_retry_msg`.`delivery_id` IS NULL" if vendor == SQLITE else "`delivery_id` IS NULL"
    )

    def merged(column: str, merge: str) -> str:
        new = _NEW_VALUE[vendor].format(column)
        old = f"`ems_retry_msg`.`{column}`"
        return f"`{column}` = {IF[vendor]}({waiting}, {merge.format(old=old, new=new)}, {old})"

    changes = ", ".join(
        (
            f"`again` = {IF[vendor]}({waiting}, `ems_retry_msg`.`again`, 1)",
            merged("attempt", GREATEST[vendor] + "({old}, {new})"),
            merged("due_at", LEAST[vendor] + "({old}, {new})"),
            merged("alone", GREATEST[vendor] + "({old}, {new})"),
            merged("last_error", "{new}"),
            merged("key_hash", "COALESCE({old}, {new})"),
        )
    )
    values = ", ".join([value] * rows)
    return (
        f"INSERT INTO `ems_retry_msg` ({RETRY_COLUMNS}) VALUES {values}"  # noqa: S608
        f" {_ON_DUPLICATE[vendor]} {changes}"
    )


# Writes a dead letter with its own copy of the message, made inside the server: bodies may be
# large. Index: ems_msg_log. If the message is gone, no row is copied: its offset is `missing` then.
COPY_TO_DEAD = for_each_vendor(
    "INSERT INTO `ems_dead_msg` (`topic_id`, `group_id`, `partition_id`, `offset`, `message_id`,"
    " `body`, `body_type`, `size`, `key`, `tag`, `headers`, `producer`, `sent_at`,"
    " `attempts`, `error_class`, `error`, `traceback`, `died_at`)"
    " SELECT %s, %s, m.`partition_id`, m.`offset`, m.`id`,"
    " m.`body`, m.`body_type`, m.`size`, m.`key`, m.`tag`, m.`headers`, m.`producer`,"
    " m.`created_at`, %s, %s, %s, %s, {now}"
    " FROM `ems_msg` m WHERE m.`partition_id` = %s AND m.`offset` = %s"
)

# Lock the retries of a group from an offset on, which a reset revokes, and write them as ended
# deliveries, whose deadline is when the retry was due. Index: ems_retry_place alone; by another
# one, or by a scan, the lock would wait for the retries of other groups.
_RETRIES_FROM = (
    " FROM `ems_retry_msg` {retries} WHERE `group_id` = %s AND `partition_id` = %s"
    " AND `offset` >= %s"
)

LOCK_RETRIES_FROM = for_each_vendor(
    "SELECT `id`, `offset`, `delivery_id`, `dead_letter_id`" + _RETRIES_FROM + " {lock}"
)

REVOKE_RETRIES = for_each_vendor(
    "INSERT INTO `ems_topic_group_log` (`group_id`, `partition_id`, `first_offset`,"
    " `last_offset`, `progress`, `kind`, `attempt`, `client_id`, `thread`, `token`, `state`,"
    " `claimed_at`, `deadline`, `finished_at`, `failed`, `dead`, `missing`, `passed`, `error`)"
    " SELECT `group_id`, `partition_id`, `offset`, `offset`, `offset`, 'retry', `attempt`, '',"
    " 'reset', %s, 'RELEASED', %s, COALESCE(`due_at`, {now}), %s, 0, 0, 0, 0, `last_error`"
    + _RETRIES_FROM
)

# Read the next letters of a group that nobody has redriven, by their ids; or the newest ones.
# Index: ems_dead_waiting, which has them in this order. Without the hint a server would sort all
# letters of the group for each page.
_WAITING_LETTERS = (
    "SELECT `id` FROM `ems_dead_msg` {letters} WHERE `group_id` = %s AND `redriven_at` IS NULL"
)

WAITING_LETTERS = for_each_vendor(
    _WAITING_LETTERS + " AND `id` > %s AND `id` <= %s ORDER BY `id` LIMIT %s"
)

ALL_LETTERS = for_each_vendor(
    "SELECT `id` FROM `ems_dead_msg` {primary} WHERE `id` > %s AND `id` <= %s"
    " ORDER BY `id` LIMIT %s"
)

NEWEST_LETTERS = for_each_vendor(_WAITING_LETTERS + " ORDER BY `id` DESC LIMIT %s")
NEWEST_ERRORS = for_each_vendor(
    _WAITING_LETTERS.replace("`id`", "`error_class`, `died_at`", 1) + " ORDER BY `id` DESC LIMIT %s"
)
