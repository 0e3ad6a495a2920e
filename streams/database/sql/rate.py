"""Holds the statements of the rates of groups: how far the next slot is, and a take of slots.

All have the index ems_rate_place.
"""

from __future__ import annotations

from streams.database.sql.dialect import GREATEST, LEAST, MYSQL, SQLITE

# The server's clock in microseconds since 1970.
CLOCK = {
    MYSQL: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
    SQLITE: "CAST((JULIANDAY('NOW') - 2440587.5) * 86400000 AS INTEGER) * 1000",
}

_OF = "`group_id` = %(group)s"

# Reads how far the next slot is from now, and how many the last take has got. In the transaction of
# that take nobody else has changed it.
BUCKET = {
    vendor: f"SELECT `next_slot` - {clock}, `taken` FROM `ems_rate` WHERE {_OF}"  # noqa: S608
    for vendor, clock in CLOCK.items()
}


def _take(vendor: str) -> str:
    now, divided = CLOCK[vendor], {MYSQL: "DIV", SQLITE: "/"}[vendor]
    first = f"{GREATEST[vendor]}(`next_slot`, {now} - %(depth)s)"
    free = f"({now} + %(ahead)s - {first}) {divided} %(interval)s + 1"
    taken = f"{LEAST[vendor]}(%(most)s, {free})"
    return (
        f"UPDATE `ems_rate` SET `taken` = {taken}, `next_slot` = {first} + %(interval)s * {taken}"  # noqa: S608
        f" WHERE {_OF} AND {first} + %(interval)s * (%(least)s - 1) <= {now} + %(ahead)s"
    )


# Takes the slots that are free up to ``ahead`` from now, ``most`` of them, if there are ``least``.
# None is older than ``depth``. The slot is set last: MySQL gives new values to what is set after.
TAKE = {vendor: _take(vendor) for vendor in (MYSQL, SQLITE)}

# Lets the next slot be one ``interval`` from now where it is further away than any take leaves it:
# the clock was set back, or the rate was lower.
BRING_FORWARD = {
    vendor: (
        f"UPDATE `ems_rate` SET `next_slot` = {clock} + %(interval)s"  # noqa: S608
        f" WHERE {_OF} AND `next_slot` > {clock} + %(interval)s + %(ahead)s"
    )
    for vendor, clock in CLOCK.items()
}

# Adds a bucket, unless there is one.
ADD_BUCKET = {
    vendor: (
        f"{insert} INTO `ems_rate` (`group_id`, `next_slot`, `taken`) VALUES (%(group)s, 0, 0)"
    )
    for vendor, insert in ((MYSQL, "INSERT IGNORE"), (SQLITE, "INSERT OR IGNORE"))
}

# Finds the groups, of some, that have no slot left up to now.
HELD_BACK = {
    vendor: f"SELECT `group_id` FROM `ems_rate` WHERE `group_id` IN (%s) AND `next_slot` > {clock}"  # noqa: S608
    for vendor, clock in CLOCK.items()
}
