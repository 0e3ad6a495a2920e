"""Holds the statements about the locks by which a server tells that a client is gone."""

from __future__ import annotations

MYSQL, MARIADB = "mysql", "mariadb"

# The server, and the second in which it was started: after a restart or a failover it is another
# one. Both times are those of one statement, so no step of the clock changes their difference.
_SERVER = {
    MYSQL: "@@server_uuid",
    MARIADB: "CONCAT(@@server_id, '@', LEFT(@@hostname, 64), ':', @@port)",
}
_STATUS = {MYSQL: "performance_schema.global_status", MARIADB: "information_schema.global_status"}
SERVER = {
    kind: (
        f"CONCAT({_SERVER[kind]}, ' ', CAST(UNIX_TIMESTAMP() - (SELECT VARIABLE_VALUE"  # noqa: S608
        f" FROM {_STATUS[kind]} WHERE VARIABLE_NAME = 'UPTIME') AS SIGNED))"
    )
    for kind in (MYSQL, MARIADB)
}

# Locks of Galera hold on one node only, and its clients may be on all of them.
GALERA = "SHOW GLOBAL VARIABLES WHERE `Variable_name` = 'wsrep_on' AND `Value` = 'ON'"

# Take the lock of a client, without waiting: 1, and the session that has it then.
TAKE = {kind: f"SELECT GET_LOCK(%s, 0), CONNECTION_ID(), {SERVER[kind]}" for kind in SERVER}
# Which session has it, and which one answers. Behind a proxy they may be others than a moment ago.
HELD = "SELECT IS_USED_LOCK(%s), CONNECTION_ID()"

# Of all live clients that have noted a lock of this server: their lease, and the session that holds
# the lock, NULL if none does. Reads ems_client, which has a row for each client and group.
CLIENTS = {
    kind: (
        "SELECT `client_id`, MAX(`lease_until`),"  # noqa: S608
        " IS_USED_LOCK(CONCAT('ems ', RIGHT(`client_id`, 12))), `locked_on` FROM `ems_client`"
        f" WHERE `lease_until` >= UTC_TIMESTAMP(6) AND `locked_on` = {SERVER[kind]}"
        " GROUP BY `client_id`, `locked_on`"
    )
    for kind in SERVER
}

# End the leases of a client that has not renewed them since they were read.
END_LEASES = (
    "UPDATE `ems_client` SET `lease_until` = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND"
    " WHERE `client_id` = %s AND `locked_on` = %s AND `lease_until` <= %s"
    " AND `lease_until` >= UTC_TIMESTAMP(6)"
)


def lock_of(client_id: str) -> str:
    """Return the name of the lock of a client: ids end with twelve random digits."""
    return f"ems {client_id[-12:]}"
