"""Holds the statements of prepared messages: the hot paths, and what the ORM cannot say."""

from __future__ import annotations

from collections.abc import Sequence

from streams.database.sql.dialect import (
    LATER,
    MYSQL,
    NOW,
    SKIP_LOCKED,
    SQLITE,
    USE_PRIMARY,
    for_each_vendor,
    placeholders,
)
from streams.database.sql.metrics import SINCE
from streams.database.sql.send import HEX_BYTES

# Tells whether there is a check endpoint of this name. Unique key: ems_check_endpoint_name.
FIND_ENDPOINT = "SELECT 1 FROM `ems_check_endpoint` WHERE `name` = %s"

_INSERTED = (
    "`biz`, `biz_key`, `topic`, `partition`, `key`, `tag`, `headers`, `body_type`, `size`,"
    " `producer`, `checker`, `context`, `next_at`, `body`, `digest`, `state`, `checks`, `sends`,"
    " `last_answer`, `last_error`, `decided_by`, `created_at`"
)


def insert_prepared(vendor: str, body: bytes, digest: bytes) -> str:
    """Return the statement that inserts a prepared message.

    Its parameters are the first twelve columns, the microseconds until the first check as later()
    gives them, and the body if it is larger than HEX_BYTES. Unique key: ems_prepared_key (biz,
    biz_key). The INSERT of a key that is there fails, and waits for nobody who decides about it: a
    decision locks the row by its primary key, and leaves the columns of that index as they are. It
    waits for a transaction that has inserted this key, or deletes it.
    """
    value = f"x'{body.hex()}'" if len(body) <= HEX_BYTES else "%s"
    rest = f"{value}, x'{digest.hex()}', 'PREPARED', 0, 0, '', '', '', {NOW[vendor]}"
    return (
        f"INSERT INTO `ems_prepared` ({_INSERTED})"  # noqa: S608
        f" VALUES ({placeholders(range(12))}, {LATER[vendor]}, {rest})"
    )


# Locks one prepared message for a decision, and reads it with the time of the server's clock. By
# its primary key: a lock by (biz, biz_key) would be in the way of each INSERT of this key, and of
# each INSERT into the gap beside a key that is not there. The key is compared, since ids may be
# given again after a failover. With SKIP_LOCKED a row that another transaction has is not found.
_READ = (
    "`id`, `state`, `topic`, `partition`, `key`, `tag`, `headers`, `body`, `body_type`, `size`,"
    " `producer`, `checker`, `checks`, `sends`, `next_at`, `decided_at`, `decided_by`,"
    " `disputed_at`, `message_id`"
)
_READ_ONE = (
    f"SELECT {{now}}, {_READ} FROM `ems_prepared` {{primary}}"  # noqa: S608
    " WHERE `id` = %s AND `biz` = %s AND `biz_key` = %s"
)
LOCK = for_each_vendor(_READ_ONE + " {lock}")
LOCK_OR_SKIP = for_each_vendor(_READ_ONE + " {skip_locked}")


def change(vendor: str, columns: Sequence[str], states: Sequence[str]) -> str:
    """Return the statement that sets ``columns`` of one row, by its primary key.

    Only while it is in one of ``states``: where a lock is lost, as in a failover, nothing is
    written over what somebody else has decided. Its parameters are the values and the id.
    """
    values = ", ".join(f"`{column}` = %s" for column in columns)
    found = ", ".join(f"'{state}'" for state in states)
    return (
        f"UPDATE `ems_prepared` {USE_PRIMARY[vendor]} SET {values}"  # noqa: S608
        f" WHERE `id` = %s AND `state` IN ({found})"
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
