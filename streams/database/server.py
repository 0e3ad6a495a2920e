"""Tells on which server a connection is, so that a failover is noticed."""

from __future__ import annotations

import time
from typing import Any

from django.db import connections

from streams.database.sql.dialect import fetch

# A group of servers that loses no commit at a failover has one name: of Group Replication, and of
# Galera. Otherwise a server has its own: of MySQL, and of MariaDB.
_VARIABLES = (
    "SHOW GLOBAL VARIABLES WHERE `Variable_name` IN ('group_replication_group_name', 'wsrep_on',"
    " 'wsrep_cluster_name', 'server_uuid', 'server_id', 'hostname', 'port')"
)
LONGEST = 64

# Of each alias the server of its newest connection, and since when this process has been on it.
_on: dict[str, tuple[str, float]] = {}


def server(using: str) -> str:
    """Return a name of the server behind this thread's connection; empty on SQLite.

    It is asked for once on each connection. Behind a proxy that changes the server without closing
    the connection, it is the first one.
    """
    connection: Any = connections[using]
    if connection.vendor != "mysql":
        return ""
    connection.ensure_connection()
    asked: tuple[object, str] = getattr(connection, "_ems_server", (None, ""))
    if asked[0] is not connection.connection:
        name = _name(dict(fetch(using, _VARIABLES)))
        if _on.get(using, ("", 0.0))[0] != name:
            _on[using] = name, time.monotonic()
        connection._ems_server = asked = connection.connection, name
    return asked[1]


def seconds_on(name: str, using: str) -> float:
    """Return for how many seconds this process has been on the server ``name``."""
    found, since = _on.get(using, ("", 0.0))
    return time.monotonic() - since if found == name else 0.0


def _name(variables: dict[str, str]) -> str:
    group = variables.get("group_replication_group_name")
    if variables.get("wsrep_on") == "ON":
        group = variables.get("wsrep_cluster_name")
    own = "{server_id}@{hostname}:{port}".format(**variables)
    return (group or variables.get("server_uuid") or own)[:LONGEST]
