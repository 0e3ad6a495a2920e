"""The raw statements of EMS, all in one place: each with what it does, the index that it needs
and the invariant that it keeps. Values are always parameters.

Why raw: a send and a pass of the sequencer are the hot paths, where the ORM costs more than the
statement; index hints and upserts with conditions are not to be had from the ORM. Backticks
quote names on MySQL, MariaDB and, as a documented compatibility, SQLite.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from django.db import connections

MYSQL, SQLITE = "mysql", "sqlite"

NOW = {
    MYSQL: "UTC_TIMESTAMP(6)",
    SQLITE: "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW')",
}
# The clock plus a parameter, see later().
LATER = {
    MYSQL: "UTC_TIMESTAMP(6) + INTERVAL %s MICROSECOND",
    SQLITE: "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW', %s)",
}
USE_INBOX = {MYSQL: "FORCE INDEX (ems_msg_inbox)", SQLITE: "INDEXED BY ems_msg_inbox"}
USE_LETTERS = {
    MYSQL: "FORCE INDEX (ems_dead_waiting)",
    SQLITE: "INDEXED BY ems_dead_waiting",
}
USE_PRIMARY = {MYSQL: "FORCE INDEX (PRIMARY)", SQLITE: ""}
USE_OPEN = {MYSQL: "FORCE INDEX (ems_log_open)", SQLITE: "INDEXED BY ems_log_open"}
USE_RETRIES = {MYSQL: "FORCE INDEX (ems_retry_place)", SQLITE: ""}
LOCK = {MYSQL: "FOR UPDATE", SQLITE: ""}
SKIP_LOCKED = {MYSQL: "FOR UPDATE SKIP LOCKED", SQLITE: ""}
GREATEST = {MYSQL: "GREATEST", SQLITE: "MAX"}
LEAST = {MYSQL: "LEAST", SQLITE: "MIN"}
IF = {MYSQL: "IF", SQLITE: "IIF"}

IMMEDIATE = "1970-01-01 00:00:00"


def later(vendor: str, delay: timedelta) -> Any:
    """The parameter of LATER."""
    if vendor == SQLITE:
        return f"{delay.total_seconds():+.6f} seconds"
    return delay // timedelta(microseconds=1)


def _for_each_vendor(template: str) -> dict[str, str]:
    return {
        vendor: template.format(
            now=NOW[vendor],
            inbox=USE_INBOX[vendor],
            letters=USE_LETTERS[vendor],
            primary=USE_PRIMARY[vendor],
            open=USE_OPEN[vendor],
            retries=USE_RETRIES[vendor],
            skip_locked=SKIP_LOCKED[vendor],
            greatest=GREATEST[vendor],
            least=LEAST[vendor],
            iff=IF[vendor],
            lock=LOCK[vendor],
            immediate=f"'{IMMEDIATE}'",
        )
        for vendor in (MYSQL, SQLITE)
    }


# --- send -------------------------------------------------------------------------------------
# A new row of the inbox. No offset and no lock but its own: producers never wait for each other.
# due_at: see DUE_AT.
MESSAGE_COLUMNS = (
    "`partition_id`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`,"
    " `created_at`"
)
INSERT_MESSAGES = f"INSERT INTO `ems_msg` ({MESSAGE_COLUMNS}) VALUES "  # noqa: S608

DUE_IMMEDIATELY = f"'{IMMEDIATE}'"
# A time in the past is an immediate message: only such ones keep their order of sending.
DUE_AT = _for_each_vendor("CASE WHEN %s <= {now} THEN {immediate} ELSE %s END")


# A body up to this many bytes stands in the text, in hexadecimal, which needs no escaping by the
# driver and no unescaping by the server (a message of 1 KB: 4 µs and 3 µs less); a larger one is
# a parameter, since hexadecimal doubles it.
HEX_BYTES = 64 * 1024


def message_values(
    vendor: str,
    partition_id: int,
    due_at: str,
    body: bytes,
    body_type: str,
    producer: str,
    *,
    named: bool,
) -> str:
    """One row of INSERT_MESSAGES; due_at and producer are given as SQL.

    Parameters: those of due_at; key, tag and headers if it is ``named`` by any of them; the body
    if it is larger than HEX_BYTES; that of producer. Each is a call into the driver, and the rest
    needs none.
    """
    names = "%s, %s, %s" if named else "NULL, '', NULL"
    value = f"x'{body.hex()}'" if len(body) <= HEX_BYTES else "%s"
    return (
        f"({partition_id:d}, {due_at}, {names}, {value}, '{body_type}', {len(body):d},"
        f" {producer}, {NOW[vendor]})"
    )


# --- dedup --------------------------------------------------------------------------------------
# The row of a key, see dedup.py. Unique key: ems_dedup_key (topic, key_hash): with it, a lock is
# on one row and on no gap. A new row is kept for an hour, for whoever is about to lock it.
# The hash stands in the text, in hexadecimal: as bytes it would make the statement unreadable for
# whoever looks at what runs (information_schema.INNODB_TRX fails on it).
_OF_DEDUP = " FROM `ems_dedup` WHERE `topic_id` = %s AND `key_hash` = x'HASH'"
_FIND_DEDUP = "SELECT 1" + _OF_DEDUP
_LOCK_DEDUP = _for_each_vendor(
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

# --- cancel -----------------------------------------------------------------------------------
# A delayed message that is still in the inbox can be cancelled.
CANCELLABLE = f"`offset` IS NULL AND `due_at` > '{IMMEDIATE}'"
# Whether a message can be, and the row of its dedup key. Plain: it locks nothing. Indexes: the
# primary key, and ems_dedup_message.
FIND_MESSAGE = (
    f"SELECT {CANCELLABLE}, d.`id` FROM `ems_msg` m"  # noqa: S608
    " LEFT JOIN `ems_dedup` d ON d.`message_id` = m.`id` WHERE m.`id` = %s"
)
_MESSAGE = "SELECT 1 FROM `ems_msg` WHERE `id` = %s"
LOCK_MESSAGE = {MYSQL: _MESSAGE + " FOR UPDATE", SQLITE: _MESSAGE}
# The key of a cancelled message is free again. By primary key: by message_id, a caller's REPEATABLE
# READ would lock the gap beside it, where the next messages with a key are noted.
FREE_DEDUP = _for_each_vendor(
    "UPDATE `ems_dedup` {primary} SET `message_id` = NULL WHERE `id` = %s AND `message_id` = %s"
)

# --- sequence ---------------------------------------------------------------------------------
# The partitions that have something due in their inbox; the first statement gives the ids for the
# second. Index: ems_msg_inbox, one jump a partition (a loose index scan, which needs the MIN).
# due_at <= now finds immediate messages (1970) and delayed ones that have become due. As EXISTS
# for each partition it would step over all that is prepared or due later: the servers give a
# correlated subquery no range.
PARTITIONS = "SELECT `id`, `topic_id` FROM `ems_partition`"
_PARTITIONS_WITH_INBOX = _for_each_vendor(
    "SELECT `partition_id`, MIN(`due_at`) FROM `ems_msg` {inbox} WHERE `partition_id` IN (%s)"
    " AND `offset` IS NULL AND `due_at` <= {now} GROUP BY `partition_id`"
)


def partitions_with_inbox(vendor: str, ids: Iterable[int]) -> str:
    return _PARTITIONS_WITH_INBOX[vendor].replace("%s", _numbers(ids))


def _numbers(ids: Iterable[int]) -> str:
    return ",".join(f"{id_:d}" for id_ in ids)


# The lock under which offsets are given out: one sequencer a partition. SKIP LOCKED: who does not
# get it has nothing to wait for. The second value makes time never fall as offsets rise.
LOCK_PARTITION = _for_each_vendor(
    "SELECT `next_offset`, {greatest}({now}, COALESCE(`last_sequenced_at`, {immediate}))"
    " FROM `ems_partition` WHERE `id` = %s {skip_locked}"
)

# One plain read, so one snapshot: if it holds an effect, it holds the cause, which has the lower
# id. A locking read, or SKIP LOCKED, could see the effect and not the cause. Index: ems_msg_inbox
# alone, in order of id because due_at is one constant.
IMMEDIATE_INBOX = _for_each_vendor(
    "SELECT `id` FROM `ems_msg` {inbox} WHERE `partition_id` = %s AND `offset` IS NULL"
    " AND `due_at` = {immediate} ORDER BY `id` LIMIT %s"
)

# Delayed messages that have become due. Locked, since a cancel may hold one in an open
# transaction: that one is left for a later pass instead of stopping the partition.
DUE_INBOX = _for_each_vendor(
    "SELECT `id` FROM `ems_msg` {inbox} WHERE `partition_id` = %s AND `offset` IS NULL"
    " AND `due_at` > {immediate} AND `due_at` <= {now} ORDER BY `due_at`, `id` LIMIT %s"
    " {skip_locked}"
)

_ASSIGN = _for_each_vendor(
    "UPDATE `ems_msg` {primary} SET `offset` = CASE `id` %s END, `sequenced_at` = %%s"
    " WHERE `id` IN (%s) AND `offset` IS NULL"
)

ADVANCE_PARTITION = (
    "UPDATE `ems_partition` SET `next_offset` = %s, `last_sequenced_at` = %s WHERE `id` = %s"
)


def assign_offsets(vendor: str, ids: Sequence[int], first: int) -> str:
    """Give ids[0] the offset first, ids[1] the next one, and so on; parameter: sequenced_at.

    Only rows that still have none: fewer matches than ids mean that a message was cancelled in
    between, and the pass must be repeated, or it would leave a hole. The numbers stand in the
    text because they are many and integers: as parameters they cost more than the statement.
    """
    cases = " ".join(f"WHEN {id_:d} THEN {offset:d}" for offset, id_ in enumerate(ids, first))
    return _ASSIGN[vendor] % (cases, _numbers(ids))


# --- claim ------------------------------------------------------------------------------------
# The cursors of a group that are behind, with what each needs to be claimed: its own and those of
# replays, which have a stop. A cursor of an ordered group is left while a delivery of it is open,
# or its next message waits for its time. Plain: it waits for nobody. Index: ems_cursor_place by
# group, then the partition by its key.
CURSORS_BEHIND = _for_each_vendor(
    "SELECT c.`id`, c.`partition_id`, p.`number`, p.`next_offset`"
    " FROM `ems_cursor` c JOIN `ems_partition` p ON p.`id` = c.`partition_id`"
    " WHERE c.`group_id` = %s AND c.`next_offset` <"
    " {least}(p.`next_offset`, COALESCE(c.`stop_offset`, p.`next_offset`))"
    " AND c.`open_delivery` IS NULL AND COALESCE(c.`blocked_until` <= {now}, 1)"
    " ORDER BY c.`partition_id`, c.`replay`"
)

# One cursor by its key. The lock is what makes a range of offsets one client's. The first form
# leaves a cursor that is being claimed from; the second queues up for it.
_CURSOR = (
    "SELECT `next_offset`, `stop_offset`, `replay`, `attempt`, `alone` FROM `ems_cursor`"
    " WHERE `id` = %s AND `open_delivery` IS NULL AND COALESCE(`blocked_until` <= {now}, 1)"
)
LOCK_FREE_CURSOR = _for_each_vendor(_CURSOR + " {skip_locked}")
LOCK_CURSOR = _for_each_vendor(_CURSOR + " {lock}")

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
ANY_DUE_RETRY = _for_each_vendor("SELECT 1" + _DUE_RETRY + " LIMIT 1")
LOCK_DUE_RETRY = _for_each_vendor(
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


def outlook(vendor: str, partitions: Iterable[int], groups: Iterable[int]) -> str:
    ids, of = _numbers(partitions), _numbers(groups) or "0"

    def until(column: str) -> str:
        return UNTIL[vendor].format(column)

    parts = (
        f"SELECT '{INBOX}', `partition_id`, {until('MIN(`due_at`)')}"  # noqa: S608
        f" FROM `ems_msg` {USE_INBOX[vendor]} WHERE `partition_id` IN ({ids})"
        f" AND `offset` IS NULL AND `due_at` >= '{IMMEDIATE}' GROUP BY `partition_id`",
        f"SELECT '{BEHIND}', c.`group_id`, MIN(COALESCE({until('c.`blocked_until`')}, 0))"  # noqa: S608
        f" FROM `ems_cursor` c JOIN `ems_partition` p ON p.`id` = c.`partition_id`"
        f" WHERE c.`group_id` IN ({of}) AND c.`open_delivery` IS NULL AND c.`next_offset` <"
        f" {LEAST[vendor]}(p.`next_offset`, COALESCE(c.`stop_offset`, p.`next_offset`))"
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

# --- settle -----------------------------------------------------------------------------------
# The outcome of a delivery's offsets below the new progress, and its end when that is past the
# last. By primary key, and only while the token is held and progress is what its holder wrote
# last. started_at comes as how long ago the first call began: it costs no statement of its own.
SETTLE_DELIVERY = {
    vendor: (
        "UPDATE `ems_topic_group_log` SET `progress` = %s, `last_offset` = %s, `state` = %s,"  # noqa: S608
        " `failed` = `failed` + %s, `missing` = `missing` + %s, `passed` = `passed` + %s,"
        " `error` = COALESCE(%s, `error`),"
        f" `started_at` = COALESCE(`started_at`, {LATER[vendor]}),"
        f" `finished_at` = CASE WHEN %s THEN {NOW[vendor]} END"
        " WHERE `id` = %s AND `token` = %s AND `state` = 'START' AND `progress` = %s"
    )
    for vendor in (MYSQL, SQLITE)
}

# --- read -------------------------------------------------------------------------------------
# The sizes and the bodies of a claimed range. Index: ems_msg_log (partition, offset).
USE_LOG = {MYSQL: "FORCE INDEX (ems_msg_log)", SQLITE: ""}  # SQLite names unique indexes itself

SIZES = {
    vendor: (
        f"SELECT `offset`, `size` FROM `ems_msg` {hint}"  # noqa: S608
        " WHERE `partition_id` = %s AND `offset` >= %s AND `offset` < %s ORDER BY `offset`"
    )
    for vendor, hint in USE_LOG.items()
}

BODIES = {
    vendor: (
        "SELECT `offset`, `id`, `key`, `tag`, `headers`, `size`, `producer`, `created_at`,"  # noqa: S608
        f" `sequenced_at`, `body_type`, `body` FROM `ems_msg` {hint}"
        " WHERE `partition_id` = %s AND `offset` >= %s AND `offset` < %s ORDER BY `offset`"
    )
    for vendor, hint in USE_LOG.items()
}
# The same as a locking read: a proxy sends it to the primary, and it sees the newest state.
BODIES_ON_PRIMARY = {
    vendor: BODIES[vendor] + (" FOR UPDATE" if vendor == MYSQL else "") for vendor in BODIES
}

# The body of a redriven message that has been purged meanwhile: the dead letter's own copy.
BODY_OF_DEAD = (
    "SELECT `offset`, `message_id`, `key`, `tag`, `headers`, `size`, `producer`, `sent_at`,"
    " NULL, `body_type`, `body` FROM `ems_dead_msg` WHERE `id` = %s"
)

# --- retry and dead letters -------------------------------------------------------------------
# Offsets that a group must see again. A waiting row keeps the higher attempt and the earlier
# due_at; a row that a delivery holds is marked `again`, so that finishing it does not end it.
# Unique key: ems_retry_place (group, partition, offset).
RETRY_COLUMNS = (
    "`group_id`, `partition_id`, `offset`, `attempt`, `due_at`, `alone`, `again`, `last_error`"
)
_ON_DUPLICATE = {
    MYSQL: "ON DUPLICATE KEY UPDATE",
    SQLITE: "ON CONFLICT (`group_id`, `partition_id`, `offset`) DO UPDATE SET",
}
_NEW_VALUE = {MYSQL: "VALUES(`{0}`)", SQLITE: "excluded.`{0}`"}


def upsert_retries(vendor: str, rows: int) -> str:
    """INSERT … or merge ``rows`` retry rows."""
    value = f"(%s, %s, %s, %s, {LATER[vendor]}, %s, 0, %s)"
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
        )
    )
    values = ", ".join([value] * rows)
    return (
        f"INSERT INTO `ems_retry_msg` ({RETRY_COLUMNS}) VALUES {values}"  # noqa: S608
        f" {_ON_DUPLICATE[vendor]} {changes}"
    )


# A dead letter with its own copy of the message, made inside the server: bodies may be large.
# Index: ems_msg_log. No row is copied when the message is gone: its offset is then `missing`.
COPY_TO_DEAD = _for_each_vendor(
    "INSERT INTO `ems_dead_msg` (`topic_id`, `group_id`, `partition_id`, `offset`, `message_id`,"
    " `body`, `body_type`, `size`, `key`, `tag`, `headers`, `producer`, `sent_at`,"
    " `attempts`, `error_class`, `error`, `traceback`, `died_at`)"
    " SELECT %s, %s, m.`partition_id`, m.`offset`, m.`id`,"
    " m.`body`, m.`body_type`, m.`size`, m.`key`, m.`tag`, m.`headers`, m.`producer`,"
    " m.`created_at`, %s, %s, %s, %s, {now}"
    " FROM `ems_msg` m WHERE m.`partition_id` = %s AND m.`offset` = %s"
)

# What a reset takes back: the retries of a group from an offset on, locked, and as deliveries that
# have ended, whose deadline is when they were due. Index: ems_retry_place alone; by another one, or
# by a scan, the lock would wait for the retries of other groups.
_RETRIES_FROM = (
    " FROM `ems_retry_msg` {retries} WHERE `group_id` = %s AND `partition_id` = %s"
    " AND `offset` >= %s"
)
LOCK_RETRIES_FROM = _for_each_vendor(
    "SELECT `id`, `offset`, `delivery_id`, `dead_letter_id`" + _RETRIES_FROM + " {lock}"
)
TAKE_BACK_RETRIES = _for_each_vendor(
    "INSERT INTO `ems_topic_group_log` (`group_id`, `partition_id`, `first_offset`,"
    " `last_offset`, `progress`, `kind`, `attempt`, `client_id`, `thread`, `token`, `state`,"
    " `claimed_at`, `deadline`, `finished_at`, `failed`, `dead`, `missing`, `passed`, `error`)"
    " SELECT `group_id`, `partition_id`, `offset`, `offset`, `offset`, 'retry', `attempt`, '',"
    " 'reset', %s, 'RELEASED', %s, `due_at`, %s, 0, 0, 0, 0, `last_error`" + _RETRIES_FROM
)

# --- operate ----------------------------------------------------------------------------------
# The next letters of a group that nobody has redriven, by their ids; or the newest ones. Index:
# ems_dead_waiting, which has them in this order. Left to itself a server would rather sort all
# the letters of the group, once for each page.
_WAITING_LETTERS = (
    "SELECT `id` FROM `ems_dead_msg` {letters} WHERE `group_id` = %s AND `redriven_at` IS NULL"
)
WAITING_LETTERS = _for_each_vendor(
    _WAITING_LETTERS + " AND `id` > %s AND `id` <= %s ORDER BY `id` LIMIT %s"
)
ALL_LETTERS = _for_each_vendor(
    "SELECT `id` FROM `ems_dead_msg` {primary} WHERE `id` > %s AND `id` <= %s"
    " ORDER BY `id` LIMIT %s"
)
NEWEST_LETTERS = _for_each_vendor(_WAITING_LETTERS + " ORDER BY `id` DESC LIMIT %s")


# --- purge ------------------------------------------------------------------------------------
# What each group of a topic still needs of one partition: by cursor (a replay has one of its own),
# the next offset to be claimed, the first that is not settled in an open delivery, and the first
# that waits to be retried. One statement, so one snapshot: a claim moves the cursor and opens the
# delivery in one transaction, and two reads could see neither. What was redriven has its body in
# the dead letter, and so has a retry below first_offset. Parameters: partition, first_offset,
# partition, first_offset, partition, topic. Indexes: ems_group_name, ems_cursor_place; ems_log_open
# and ems_retry_place once a cursor.
HOLDERS = _for_each_vendor(
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

# The next messages of a partition below its first_offset. Index: ems_msg_log alone. It begins
# where the last batch ended: from 0, it would step over what that one has delete-marked.
PURGED_MESSAGES = {
    vendor: (
        f"SELECT `id`, `offset` FROM `ems_msg` {hint}"  # noqa: S608
        " WHERE `partition_id` = %s AND `offset` >= %s AND `offset` < %s"
        " ORDER BY `offset` LIMIT %s"
    )
    for vendor, hint in USE_LOG.items()
}


def delete_by_id(vendor: str, table: str, ids: Iterable[int], condition: str = "1 = 1") -> str:
    """Delete these rows by their primary key: by any other index, or by a scan that a server
    prefers on a small table, it would wait for rows that others have locked.

    ``condition`` is looked at again in each row: after a TRUNCATE its id may be another's.
    """
    which = f"`id` IN ({_numbers(ids)}) AND {condition}"
    if vendor == SQLITE:
        return f"DELETE FROM `{table}` WHERE {which}"  # noqa: S608
    return f"DELETE `{table}` FROM `{table}` {USE_PRIMARY[vendor]} WHERE {which}"


# Of a partition, and below this offset: in the log, so never in the inbox.
BELOW = "`partition_id` = %s AND `offset` < %s"

# How many messages are in the inbox of a partition, also in transactions that are still open: the
# read fails at once at a row that another one has locked. Index: ems_msg_inbox.
COUNT_INBOX = {
    vendor: (
        f"SELECT COUNT(*) FROM `ems_msg` {hint} WHERE `partition_id` = %s AND `offset` IS NULL"  # noqa: S608
        + (" FOR UPDATE NOWAIT" if vendor == MYSQL else "")
    )
    for vendor, hint in USE_INBOX.items()
}


def placeholders(values: Sequence[Any]) -> str:
    """The inside of an IN for these values."""
    return ", ".join(["%s"] * len(values))


def insert(using: str, statement: str, parameters: Iterable[Any]) -> int:
    """Run one INSERT of one row on ``using``; returns its id."""
    with connections[using].cursor() as cursor:
        cursor.execute(statement, tuple(parameters))
        return int(cursor.lastrowid)


def execute(using: str, statement: str, parameters: Iterable[Any] = ()) -> int:
    """Run one statement on ``using``; returns the rows that matched."""
    with connections[using].cursor() as cursor:
        cursor.execute(statement, tuple(parameters))
        return int(cursor.rowcount)


def fetch(using: str, statement: str, parameters: Iterable[Any] = ()) -> list[Any]:
    """Run one SELECT on ``using``; returns its rows."""
    with connections[using].cursor() as cursor:
        cursor.execute(statement, tuple(parameters))
        return list(cursor.fetchall())
