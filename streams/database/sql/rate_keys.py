"""Holds the statements of groups with a rate for each key. All have the index ems_rate_key_place.

A bucket that is added, or deleted and added again, has the slots of the last day at most: so a
deleted one, whose next slot was a day old, gets none that it did not have.
"""

from __future__ import annotations

from streams.database.sql.dialect import LOCK, MYSQL, SQLITE, placeholders
from streams.database.sql.rate import CLOCK

DAY = 86_400_000_000  # microseconds

_USE = {MYSQL: "FORCE INDEX (ems_rate_key_place)", SQLITE: ""}
_INSERT = {MYSQL: "INSERT IGNORE", SQLITE: "INSERT OR IGNORE"}


def lock_buckets(vendor: str, keys: int) -> str:
    """Return the statement that locks the buckets of so many keys, in the order of all who do.

    With each it reads the server's clock, which is the start of the statement.
    """
    return (
        f"SELECT `key_hash`, {CLOCK[vendor]}, `next_slot`, `queued_until`"  # noqa: S608
        f" FROM `ems_rate_key` {_USE[vendor]}"
        f" WHERE `group_id` = %s AND `key_hash` IN ({placeholders(range(keys))})"
        f" ORDER BY `key_hash` {LOCK[vendor]}"
    )


def add_buckets(vendor: str, keys: int) -> str:
    """Return the statement that adds buckets, unless there are any."""
    row = f"(%s, %s, {CLOCK[vendor]} - {DAY}, 0)"
    return (
        f"{_INSERT[vendor]} INTO `ems_rate_key`"
        f" (`group_id`, `key_hash`, `next_slot`, `queued_until`) VALUES {', '.join([row] * keys)}"
    )


# Writes a bucket that is locked.
WRITE_BUCKET = (
    "UPDATE `ems_rate_key` SET `next_slot` = %s, `queued_until` = %s"
    " WHERE `group_id` = %s AND `key_hash` = %s"
)

# The server's clock in microseconds, and what is a day before it: for the nightly step.
A_DAY_AGO = {vendor: f"{clock} - {DAY}" for vendor, clock in CLOCK.items()}
