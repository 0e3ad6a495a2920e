"""Holds the statements of the sequencer, which moves messages from the inbox into the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from streams.database.sql.dialect import MYSQL, SQLITE, for_each_vendor, lists, numbers
from streams.database.sql.read import USE_LOG

# Find the partitions that have something due in their inbox; the first statement gives the ids for
# the second. Index: ems_msg_inbox, one entry for each partition (a loose index scan, which needs
# the MIN). due_at <= now finds immediate messages (1970) and delayed ones that have become due. As
# EXISTS for each partition it would read all messages that are prepared or due later: the servers
# use no range for a correlated subquery.
PARTITIONS = "SELECT `id`, `topic_id` FROM `ems_partition`"

_PARTITIONS_WITH_INBOX = for_each_vendor(
    "SELECT `partition_id`, MIN(`due_at`) FROM `ems_msg` {inbox} WHERE `partition_id` IN (%s)"
    " AND `offset` IS NULL AND `due_at` <= {now} GROUP BY `partition_id`"
)


def partitions_with_inbox(vendor: str, ids: Iterable[int]) -> str:
    each = _PARTITIONS_WITH_INBOX[vendor]
    return " UNION ALL ".join(each.replace("%s", some) for some in lists(ids))


# Finds, of each partition that has something due: that a message sent at once is among it (a row
# with 1970), and when the oldest delayed one that has become due was due. Index: ems_msg_inbox, one
# entry of each partition and part (a loose index scan, which needs the MIN).
_DUE_HEADS = for_each_vendor(
    "SELECT `partition_id`, MIN(`due_at`) FROM `ems_msg` {inbox} WHERE `partition_id` IN (%s)"
    " AND `offset` IS NULL AND `due_at` = {immediate} GROUP BY `partition_id`"
    " UNION ALL SELECT `partition_id`, MIN(`due_at`) FROM `ems_msg` {inbox}"
    " WHERE `partition_id` IN (%s) AND `offset` IS NULL AND `due_at` > {immediate}"
    " AND `due_at` <= {now} GROUP BY `partition_id`"
)

# Finds when the first immediate message of a partition was sent. Index: ems_msg_inbox, one entry.
# As a correlated subquery it would sort the inbox of the partition.
_FIRST = for_each_vendor(
    "SELECT * FROM (SELECT `partition_id`, `created_at` FROM `ems_msg` {inbox}"
    " WHERE `partition_id` = %d AND `offset` IS NULL AND `due_at` = {immediate}"
    " ORDER BY `id` LIMIT 1) AS p%d"
)


# Counts what is due in these partitions, up to a limit for all of them together. Index:
# ems_msg_inbox alone, as many entries.
_DUE_COUNTS = for_each_vendor(
    "SELECT `partition_id`, COUNT(*) FROM (SELECT `partition_id` FROM `ems_msg` {inbox}"
    " WHERE `partition_id` IN (%s) AND `offset` IS NULL AND `due_at` <= {now} LIMIT :most) AS `due`"
    " GROUP BY `partition_id`"
)


def due_heads(vendor: str, ids: Iterable[int]) -> str:
    return " UNION ALL ".join(_DUE_HEADS[vendor].replace("%s", some) for some in lists(ids))


def due_counts(vendor: str, ids: Iterable[int], at_most: int) -> Iterator[str]:
    for some in lists(ids):
        yield _DUE_COUNTS[vendor].replace("%s", some).replace(":most", f"{at_most:d}")


def first_immediate(vendor: str, ids: Iterable[int]) -> str:
    return " UNION ALL ".join(_FIRST[vendor].replace("%d", f"{id_:d}") for id_ in ids)


# Locks a partition: only the sequencer that holds this lock gives out offsets. SKIP LOCKED: another
# sequencer has nothing to wait for. The second value is the time, and above that of earlier offsets
# also when the clock steps back: no two passes have the same, so the audit can tell what one pass
# has placed. Then from where on the index has the keys, and whether it is to have them; then how
# often the log was rewound, and on which server the last offsets were given. The inner SELECT locks
# nothing.
_NEXT_INSTANT = {
    MYSQL: "`last_sequenced_at` + INTERVAL 1 MICROSECOND",
    SQLITE: "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', `last_sequenced_at`, '+0.001 seconds')",
}
LOCK_PARTITION = {
    vendor: statement.replace(":next_instant", _NEXT_INSTANT[vendor])
    for vendor, statement in for_each_vendor(
        "SELECT `next_offset`, {greatest}({now}, COALESCE(:next_instant, {immediate})),"
        " `keys_from`,"
        " (SELECT t.`index_keys` FROM `ems_topic` t WHERE t.`id` = `ems_partition`.`topic_id`),"
        " `epoch`, `server`"
        " FROM `ems_partition` WHERE `id` = %s {skip_locked}"
    ).items()
}

# Reads immediate messages by one plain read, so one snapshot. If a message was sent because of
# another one, which has the lower id, the snapshot has both or only the other one. A locking read,
# or SKIP LOCKED, could see the effect and not its cause. Index: ems_msg_inbox alone, in order of id
# because due_at is one constant.
IMMEDIATE_INBOX = for_each_vendor(
    "SELECT `id` FROM `ems_msg` {inbox} WHERE `partition_id` = %s AND `offset` IS NULL"
    " AND `due_at` = {immediate} ORDER BY `id` LIMIT %s"
)

# Reads delayed messages that have become due, and locks none. Index: ems_msg_inbox alone. A locking
# read would lock each entry that it passes, also of what has left the inbox and is still in the
# index: on an emptied table the servers read the whole index, and under an open snapshot that was a
# second for 250,000 messages.
_DUE_INBOX = (
    "SELECT `id` FROM `ems_msg` {inbox} WHERE `partition_id` = %s AND `offset` IS NULL"
    " AND `due_at` > {immediate} AND `due_at` <= {now} ORDER BY `due_at`, `id` LIMIT %s"
)
DUE_INBOX = for_each_vendor(_DUE_INBOX)

# Locks those that were found. A message that a cancel holds in an open transaction
# is skipped and left for a later pass, so that it does not stop the partition. Index: the primary
# key.
_LOCK_DUE = for_each_vendor(
    "SELECT `id` FROM `ems_msg` {primary} WHERE `id` IN (%s) AND `offset` IS NULL {skip_locked}"
)

# The same in one statement, which finds others behind a whole pass of locked ones.
LOCK_DUE_INBOX = for_each_vendor(_DUE_INBOX + " {skip_locked}")

# Reads the last offset of each partition: (partition id, offset). Index: ems_msg_log, one entry of
# each partition. For that MySQL needs the GROUP BY (a loose index scan; a correlated subquery would
# read all), and SQLite the correlated subquery.
LAST_OFFSETS = {
    MYSQL: "SELECT `partition_id`, MAX(`offset`) FROM `ems_msg` FORCE INDEX (ems_msg_log)"
    " GROUP BY `partition_id`",
    SQLITE: "SELECT `id`, (SELECT MAX(`offset`) FROM `ems_msg` WHERE `partition_id` = p.`id`)"
    " FROM `ems_partition` p",
}

_ASSIGN = for_each_vendor(
    "UPDATE `ems_msg` {primary} SET `offset` = CASE `id` %s END, `sequenced_at` = %%s"
    " WHERE `id` IN (%s) AND `offset` IS NULL"
)

ADVANCE_PARTITION = (
    "UPDATE `ems_partition` SET `next_offset` = %s, `last_sequenced_at` = %s, `keys_from` = %s,"
    " `server` = %s WHERE `id` = %s"
)

# Writes the keys of messages that this transaction has given their offsets. Index: the primary key.
_INDEX_KEYS = for_each_vendor(
    "INSERT INTO `ems_key` (`partition_id`, `key`, `offset`)"
    " SELECT `partition_id`, `key`, `offset` FROM `ems_msg` {primary}"
    " WHERE `id` IN (%s) AND `key` IS NOT NULL ORDER BY `id`"
)


# Writes the keys of a range of messages that had got their offsets before the index was on; under
# READ COMMITTED it locks none of them. Index: ems_msg_log.
INDEX_OLDER_KEYS = {
    vendor: (
        "INSERT INTO `ems_key` (`partition_id`, `key`, `offset`)"  # noqa: S608
        f" SELECT `partition_id`, `key`, `offset` FROM `ems_msg` {hint}"
        " WHERE `partition_id` = %s AND `offset` >= %s AND `offset` < %s AND `key` IS NOT NULL"
        " ORDER BY `offset`"
    )
    for vendor, hint in USE_LOG.items()
}


def index_keys(vendor: str, ids: Sequence[int]) -> str:
    return _INDEX_KEYS[vendor].replace("%s", numbers(ids))


def lock_due(vendor: str, ids: Sequence[int]) -> str:
    return _LOCK_DUE[vendor].replace("%s", numbers(ids))


def assign_offsets(vendor: str, ids: Sequence[int], first: int) -> str:
    """Return the statement that gives ids[0] the offset ``first``, ids[1] the next one, and so on.

    Its parameter is sequenced_at. It changes only rows without an offset: fewer matches than ids
    mean that a message was cancelled in between, and the pass must be repeated, or it would leave
    a hole. The numbers are in the text because they are many: as parameters they would cost more
    than the statement.
    """
    cases = " ".join(f"WHEN {id_:d} THEN {offset:d}" for offset, id_ in enumerate(ids, first))
    return _ASSIGN[vendor] % (cases, numbers(ids))
