"""Holds the statements of prepared messages that the ORM cannot say."""

from __future__ import annotations

from collections.abc import Sequence

from streams.database.sql.dialect import (
    MYSQL,
    NOW,
    SKIP_LOCKED,
    SQLITE,
)
from streams.database.sql.metrics import SINCE

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

# Where a count ends.
COUNT_AT_MOST = 10_000


def counts(vendor: str, states: Sequence[str]) -> str:
    """Return the statement for (state, how many, age of the oldest in seconds) of each state.

    At most COUNT_AT_MOST messages of each state are counted, and the age is that of the oldest
    among these: a scrape comes every few seconds. Index: ems_prepared_due, and the rows themselves
    for their business and their age. The rows of other namespaces are read and not counted, so the
    bound is one of the rows read only where there is one namespace: a bound for all would show 0
    for a namespace that lies behind a large one. The statement takes the range of the namespace
    once for each state.
    """
    age = SINCE[vendor].format("MIN(`created_at`)", NOW[vendor])
    return " UNION ALL ".join(
        f"SELECT '{state}', COUNT(*), {age} FROM (SELECT `created_at` FROM `ems_prepared`"  # noqa: S608
        f" {_USE_DUE[vendor]} WHERE `state` = '{state}' AND `biz` >= %s AND `biz` < %s"
        f" LIMIT {COUNT_AT_MOST}) AS counted"
        for state in states
    )
