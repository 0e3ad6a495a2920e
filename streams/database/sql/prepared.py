"""Holds the statements of prepared messages that the ORM cannot say."""

from __future__ import annotations

from streams.database.sql.dialect import (
    MYSQL,
    NOW,
    SKIP_LOCKED,
    SQLITE,
)

_USE_DUE = {MYSQL: "FORCE INDEX (ems_prepared_due)", SQLITE: "INDEXED BY ems_prepared_due"}

# Locks the prepared messages of one checker that are due, those first that have waited longest.
# Index: ems_prepared_due (state, checker, next_at), without which SKIP LOCKED would lock every row
# that it reads. SKIP LOCKED: who decides about a message at this moment is left alone, and two
# checkers get different messages. The range of biz is that of the namespace.
CLAIM = {
    vendor: (
        f"SELECT `id` FROM `ems_prepared` {_USE_DUE[vendor]} WHERE `state` = 'PREPARED'"  # noqa: S608
        f" AND `checker` = %s AND `next_at` <= {NOW[vendor]} AND `biz` >= %s AND `biz` < %s"
        f" ORDER BY `next_at` LIMIT %s {SKIP_LOCKED[vendor]}"
    )
    for vendor in (MYSQL, SQLITE)
}

# The states in which messages wait for a time, and the checkers with messages that are due, of all
# namespaces. Index: ems_prepared_due, in which the servers jump from the first entry of a checker
# to that of the next one; with one state MariaDB would read all its entries.
DUE = {
    vendor: (
        f"SELECT `state`, `checker` FROM `ems_prepared` {_USE_DUE[vendor]}"  # noqa: S608
        " WHERE `state` IN ('PREPARED', 'COMMITTED')"
        f" GROUP BY `state`, `checker` HAVING MIN(`next_at`) <= {NOW[vendor]}"
    )
    for vendor in (MYSQL, SQLITE)
}

# Counts the messages of each state but the final ones, which are many, with the age of the oldest
# in seconds. Index: ems_prepared_due.
COUNTS = {
    MYSQL: (
        "SELECT `state`, COUNT(*), TIMESTAMPDIFF(SECOND, MIN(`created_at`), UTC_TIMESTAMP(6))"
        " FROM `ems_prepared` FORCE INDEX (ems_prepared_due)"
        " WHERE `state` IN ('PREPARED', 'COMMITTED', 'UNSENT', 'MANUAL')"
        " AND `biz` >= %s AND `biz` < %s GROUP BY `state`"
    ),
    SQLITE: (
        "SELECT `state`, COUNT(*),"
        " (JULIANDAY('now') - JULIANDAY(MIN(`created_at`))) * 86400.0"
        " FROM `ems_prepared` INDEXED BY ems_prepared_due"
        " WHERE `state` IN ('PREPARED', 'COMMITTED', 'UNSENT', 'MANUAL')"
        " AND `biz` >= %s AND `biz` < %s GROUP BY `state`"
    ),
}
