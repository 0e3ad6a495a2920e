"""Holds the statements of the metrics: each reads a bounded number of index entries.

All are plain reads without locks, and each ends after SECONDS. What a statement reads of other
namespaces is left out by the ids of partitions and groups, which are those of this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from streams.database.sql.dialect import (
    IMMEDIATE,
    MYSQL,
    NOW,
    SQLITE,
    USE_INBOX,
    USE_LETTERS,
    USE_OPEN,
    USE_RETRIES,
    numbers,
    set_bits,
)

# The time limit of one statement.
SECONDS = 2
# Where a count ends, and that of the inbox.
COUNT_AT_MOST = 100_000
INBOX_AT_MOST = 10_001
# The most parts of a UNION: SQLite allows 500.
PARTS = 200

USE_DUE_RETRIES = {MYSQL: "FORCE INDEX (ems_retry_due)", SQLITE: "INDEXED BY ems_retry_due"}
USE_LOG = {MYSQL: "FORCE INDEX (ems_msg_log)", SQLITE: ""}

# Seconds from one instant to another.
SINCE = {
    MYSQL: "TIMESTAMPDIFF(MICROSECOND, {0}, {1}) / 1e6",
    SQLITE: "(JULIANDAY({1}) - JULIANDAY({0})) * 86400.0",
}


def limited(statement: str, *, vendor: str, is_mariadb: bool) -> str:
    """Return the SELECT with a time limit of its own; SQLite has none."""
    if vendor == SQLITE:
        return statement
    if is_mariadb:
        return f"SET STATEMENT max_statement_time={SECONDS} FOR {statement}"
    return statement.replace("SELECT", f"SELECT /*+ MAX_EXECUTION_TIME({SECONDS * 1000}) */", 1)


# The partitions of the topics whose stored names are in a range.
PARTITIONS = (
    "SELECT t.`name`, t.`access`, p.`id`, p.`number`, p.`first_offset`, p.`next_offset`"
    " FROM `ems_partition` p JOIN `ems_topic` t ON t.`id` = p.`topic_id`"
    " WHERE t.`name` >= %s AND t.`name` < %s"
)

GROUPS = (
    "SELECT g.`id`, t.`name`, g.`name`, g.`paused`, g.`mode`"
    " FROM `ems_group` g JOIN `ems_topic` t ON t.`id` = g.`topic_id`"
    " WHERE t.`name` >= %s AND t.`name` < %s"
)


def steps(vendor: str) -> str:
    age = SINCE[vendor].format("`last_run_at`", NOW[vendor])
    return f"SELECT `name`, {age} FROM `ems_step` WHERE `name` >= %s AND `name` < %s"  # noqa: S608


# What a row of positions() is of.
CURSOR, HELD, GIVEN_BACK, RETRY = "cursor", "held", "given back", "retry"


def positions(vendor: str) -> str:
    """Return the statement for (what, group, partition, is replay, lowest offset, messages).

    Cursors: one row each. Open deliveries: by ems_log_open, at most COUNT_AT_MOST of them; offsets
    that have been purged have no age, so they are not the lowest ones; ``above`` is what is settled
    above the progress, in any order. Retries: the lowest offset of each place, one entry of
    ems_retry_place each (a loose index scan, which needs the MIN).
    """
    return (
        f"SELECT '{CURSOR}', `group_id`, `partition_id`, 0, `next_offset`, 0 FROM `ems_cursor`"  # noqa: S608
        " WHERE `replay` = 0"
        " UNION ALL SELECT o.`what`, o.`group_id`, o.`partition_id`, o.`replays`,"
        " MIN(CASE WHEN o.`progress` >= p.`first_offset` THEN o.`progress` END),"
        " SUM(o.`last_offset` + 1 - o.`progress` - o.`above`)"
        f" FROM (SELECT CASE `token` WHEN '' THEN '{GIVEN_BACK}' ELSE '{HELD}' END AS `what`,"
        " `group_id`, `partition_id`, `kind` = 'replay' AS `replays`, `progress`, `last_offset`,"
        f" {set_bits(vendor, '`settled` >> (`progress` - `first_offset`)')} AS `above`"
        f" FROM `ems_topic_group_log` {USE_OPEN[vendor]} WHERE `state` = 'START'"
        f" LIMIT {COUNT_AT_MOST}) o JOIN `ems_partition` p ON p.`id` = o.`partition_id`"
        " GROUP BY o.`what`, o.`group_id`, o.`partition_id`, o.`replays`"
        f" UNION ALL SELECT '{RETRY}', `group_id`, `partition_id`, 0, MIN(`offset`), 0"
        f" FROM `ems_retry_msg` {USE_RETRIES[vendor]} GROUP BY `group_id`, `partition_id`"
    )


# What a row of counts() is of.
RETRIES, LETTERS, CONSUMERS = "retries", "dead letters", "consumers"


def counts(vendor: str, groups: Iterable[int]) -> Iterator[str]:
    """Yield statements for (what, group, count); each count ends at COUNT_AT_MOST.

    Index: ems_retry_due and ems_dead_waiting alone. The clients are few: one row a process and
    group.
    """
    parts = [
        f"SELECT '{CONSUMERS}', `group_id`, COUNT(*) FROM `ems_client`"  # noqa: S608
        f" WHERE `lease_until` >= {NOW[vendor]} GROUP BY `group_id`"
    ]
    for group in groups:
        for what, table, waiting in (
            (RETRIES, f"`ems_retry_msg` {USE_DUE_RETRIES[vendor]}", "`delivery_id` IS NULL"),
            (LETTERS, f"`ems_dead_msg` {USE_LETTERS[vendor]}", "`redriven_at` IS NULL"),
        ):
            parts.append(
                f"SELECT '{what}', {group:d}, COUNT(*) FROM (SELECT 1 FROM {table}"  # noqa: S608
                f" WHERE `group_id` = {group:d} AND {waiting} LIMIT {COUNT_AT_MOST}) t"
            )
    return _unions(parts)


# What a row of inbox_heads() is of: due since it was sent, due later and now, due in the future.
AT_ONCE, COME_DUE, DELAYED = "at once", "come due", "delayed"


def inbox_heads(vendor: str, partitions: Sequence[int]) -> str:
    """Return the statement for (what, partition, seconds from now until the lowest due_at).

    Index: ems_msg_inbox, one entry of each partition and part (a loose index scan).
    """
    from_now = SINCE[vendor].format(NOW[vendor], "MIN(`due_at`)")
    return " UNION ALL ".join(
        f"SELECT '{what}', `partition_id`, {from_now} FROM `ems_msg` {USE_INBOX[vendor]}"  # noqa: S608
        f" WHERE `partition_id` IN ({numbers(partitions)}) AND `offset` IS NULL AND {condition}"
        " GROUP BY `partition_id`"
        for what, condition in (
            (AT_ONCE, f"`due_at` = '{IMMEDIATE}'"),
            (COME_DUE, f"`due_at` > '{IMMEDIATE}' AND `due_at` <= {NOW[vendor]}"),
            (DELAYED, f"`due_at` > {NOW[vendor]}"),
        )
    )


def inbox_counts(vendor: str, partitions: Iterable[int]) -> Iterator[str]:
    """Yield statements for (partition, messages due, seconds since the first at once was sent).

    Index: ems_msg_inbox. A count ends at INBOX_AT_MOST. The seconds are NULL where all are delayed
    ones.
    """
    age = SINCE[vendor].format("`created_at`", NOW[vendor])
    return _unions(
        f"SELECT {one:d}, (SELECT COUNT(*) FROM (SELECT 1 FROM `ems_msg` {USE_INBOX[vendor]}"  # noqa: S608
        f" WHERE `partition_id` = {one:d} AND `offset` IS NULL AND `due_at` <= {NOW[vendor]}"
        f" LIMIT {INBOX_AT_MOST}) t),"
        f" (SELECT {age} FROM `ems_msg` {USE_INBOX[vendor]} WHERE `partition_id` = {one:d}"
        f" AND `offset` IS NULL AND `due_at` = '{IMMEDIATE}' ORDER BY `id` LIMIT 1)"
        for one in partitions
    )


def ages(vendor: str, places: Iterable[tuple[int, int]]) -> Iterator[str]:
    """Yield statements for (partition, offset, seconds since it was sequenced).

    Index: ems_msg_log, one entry of each place. Offsets without a message have no row.
    """
    age = SINCE[vendor].format("`sequenced_at`", NOW[vendor])
    return _unions(
        f"SELECT `partition_id`, `offset`, {age} FROM `ems_msg` {USE_LOG[vendor]}"  # noqa: S608
        f" WHERE `partition_id` = {partition:d} AND `offset` = {offset:d}"
        for partition, offset in places
    )


# The age of the oldest open transaction in seconds, and the length of the history list. Needs the
# privilege PROCESS. trx_started is in the time zone of the server's host.
TRANSACTIONS = (
    "SELECT (SELECT MAX(TIMESTAMPDIFF(SECOND, CONVERT_TZ(`trx_started`, 'SYSTEM', '+00:00'),"
    " UTC_TIMESTAMP())) FROM information_schema.INNODB_TRX),"
    " (SELECT `COUNT` FROM information_schema.INNODB_METRICS"
    " WHERE `NAME` = 'trx_rseg_history_len')"
)


def _unions(parts: Iterable[str]) -> Iterator[str]:
    every = list(parts)
    for at in range(0, len(every), PARTS):
        yield " UNION ALL ".join(every[at : at + PARTS])
