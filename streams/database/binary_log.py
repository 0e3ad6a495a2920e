"""Keeps bodies out of the binary log where EMS changes or deletes rows that have one.

With binlog_row_image=FULL, the default of servers, the log has each body four times: as it was
sent, before and after its row got an offset, and as it was deleted. With NOBLOB it has it once. See
docs/decisions/0014-binary-log.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import Error, connections

from streams.database.retrying import error_number

# The error of a server whose account may not change the variable.
NOT_GRANTED = 1227

_ASKED = (
    "SELECT @@GLOBAL.log_bin, @@SESSION.binlog_format,"
    " @@GLOBAL.binlog_row_image, @@SESSION.binlog_row_image"
)


def leave_bodies_out(using: str) -> None:
    """Let this thread's connection to ``using`` write no body into the log that does not change.

    It holds until the connection ends, so use it where no code of the project runs on that. The
    server is asked once on each connection.
    """
    connection: Any = connections[using]
    if connection.vendor != "mysql":
        return
    connection.ensure_connection()
    if getattr(connection, "_ems_bodies_left_out", None) is not connection.connection:
        _leave_out(connection)
        connection._ems_bodies_left_out = connection.connection


@contextmanager
def bodies_left_out(using: str) -> Iterator[bool]:
    """Do the same in the block, and then undo it; yield whether it is done here."""
    connection: Any = connections[using]
    done = connection.vendor == "mysql" and _leave_out(connection)
    session = connection.connection
    try:
        yield done
    finally:
        # A connection that is opened meanwhile has what the server has.
        if done and connection.connection is session:
            try:
                with connection.cursor() as cursor:
                    cursor.execute("SET SESSION binlog_row_image = 'FULL'")
            except Error:
                connection.close()  # it is lost, or its state is unknown


def _leave_out(connection: Any) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(_ASKED)
        is_on, form, of_server, of_session = cursor.fetchone()
        # Another value is the choice of who runs the server, or of the project for its sessions.
        if not is_on or form == "STATEMENT" or (of_server, of_session) != ("FULL", "FULL"):
            return False
        try:
            cursor.execute("SET SESSION binlog_row_image = 'NOBLOB'")
        except Error as error:
            if error_number(error) != NOT_GRANTED:
                raise
            return False
    return True
