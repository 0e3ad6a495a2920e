"""Opens plain database connections for jobs and executors, which have no Django.

Statements are written for both vendors: backticks quote names, ``%s`` stands for a value and
``%%`` for a per cent sign.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, TypeVar
from urllib.parse import quote

from sparkjobs.config import EVERY, MYSQL, REPLICA, SQLITE, Config

# A DB-API connection: of MySQLdb or sqlite3.
Connection = Any
T = TypeVar("T")

# The tables that have names of a namespace, and their other columns that statements read. Each
# statement gives them an alias.
NAMED = {
    "ems_topic": "`id`, `access`, `archive`",
    "ems_group": "`id`, `topic_id`, `mode`, `ordered`, `by_key`, `tags`",
}

LOCK_SECONDS = 20
# Seconds that the server waits for a reader that is busy, for example with writing Parquet.
WRITE_SECONDS = 600

# Rows of one call into the driver: few, since each may be as large as the largest message.
FETCH_ROWS = 32
DELETED_ROWS = 1000
# The most rows and bytes of messages that one statement writes: far below the smallest
# max_allowed_packet.
STATEMENT_ROWS = 500
STATEMENT_BYTES = 1024 * 1024

NOW = {MYSQL: "UTC_TIMESTAMP(6)", SQLITE: "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW')"}
FOR_UPDATE = {MYSQL: "FOR UPDATE", SQLITE: ""}
# An account that only reads may do so, too.
FOR_SHARE = {MYSQL: "LOCK IN SHARE MODE", SQLITE: ""}


class _SqliteConnection(sqlite3.Connection):
    """A connection with a place for the names that its statements see, as MySQLdb's has."""

    ems_names: Mapping[str, str]


def connect(config: Config, *, replica: bool = False) -> Connection:
    """Return a connection in UTC and READ COMMITTED, which commits each statement.

    Its statements see the topics and groups of the configured namespace, without its prefix. With
    ``replica`` it is one to the server for reading, if there is one.
    """
    connection = _connect(config, replica=replica and config.replica)
    connection.ems_names = _names(config)
    return connection


def _names(config: Config) -> dict[str, str]:
    """Return what statements read in place of the tables that have names.

    The servers merge such a table into the statement, so indexes by id are used.
    """
    if config.namespace == EVERY:
        return {}
    name, own = "`name`", "`name` >= '!'"
    if config.prefix:
        name = f"SUBSTR(`name`, {len(config.prefix) + 1}) AS `name`"
        own = f"`name` >= '{config.prefix}' AND `name` < '{config.prefix[:-1]}0'"
    return {
        f"`{table}`": f"(SELECT {name}, {columns} FROM `{table}` WHERE {own})"  # noqa: S608
        for table, columns in NAMED.items()
    }


def _connect(config: Config, *, replica: bool) -> Connection:
    if config.vendor == SQLITE:
        # mode=rw: a wrong path is an error, not a new and empty database.
        uri = f"file:{quote(config.database)}?mode=rw"
        return sqlite3.connect(
            uri,
            uri=True,
            timeout=LOCK_SECONDS,
            isolation_level=None,
            factory=_SqliteConnection,
        )
    import MySQLdb
    from MySQLdb.constants import CLIENT

    connection = MySQLdb.connect(
        read_default_file=config.path,
        # The client reads the part [client], and beside it one more.
        **({"read_default_group": REPLICA} if replica else {}),
        charset="utf8mb4",
        autocommit=True,
        # With this, rowcount is the number of rows that matched, as in Django. Guarded updates
        # rely on it.
        client_flag=CLIENT.FOUND_ROWS,
    )
    execute(
        connection,
        "SET SESSION time_zone = '+00:00', SESSION innodb_lock_wait_timeout = %s,"
        " SESSION net_write_timeout = %s",
        [LOCK_SECONDS, WRITE_SECONDS],
    )
    execute(connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    return connection


@contextmanager
def connected(config: Config) -> Iterator[Connection]:
    """Yield a connection, and close it at the end."""
    with closing(connect(config)) as connection:
        yield connection


def vendor_of(connection: Connection) -> str:
    return SQLITE if isinstance(connection, sqlite3.Connection) else MYSQL


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """Open a transaction; commit it at the end, or roll it back after an exception."""
    sqlite = vendor_of(connection) == SQLITE
    execute(connection, "BEGIN IMMEDIATE" if sqlite else "START TRANSACTION")
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def execute(connection: Connection, statement: str, values: Iterable[Any] = ()) -> int:
    """Run one statement; return the number of rows that matched."""
    with closing(connection.cursor()) as cursor:
        cursor.execute(_written_for(connection, statement), tuple(values))
        return int(cursor.rowcount)


def fetch(connection: Connection, statement: str, values: Iterable[Any] = ()) -> list[Any]:
    """Return all rows of one SELECT."""
    with closing(connection.cursor()) as cursor:
        cursor.execute(_written_for(connection, statement), tuple(values))
        return list(cursor.fetchall())


def stream(
    connection: Connection, statement: str, values: Iterable[Any] = ()
) -> Iterator[Sequence[tuple[Any, ...]]]:
    """Yield the rows of one SELECT, a few at a time, as the server sends them.

    A caller that stops before the last row must close the connection, which is not usable then.
    """
    if vendor_of(connection) == SQLITE:
        cursor = connection.cursor()
    else:
        from MySQLdb.cursors import SSCursor

        cursor = connection.cursor(SSCursor)
    cursor.execute(_written_for(connection, statement), tuple(values))
    while rows := cursor.fetchmany(FETCH_ROWS):
        yield rows
    cursor.close()


def insert(
    connection: Connection,
    table: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    verb: str = "INSERT",
) -> None:
    """Insert, or REPLACE, rows with one statement; give it no more than fit into a packet."""
    if rows:
        names = ", ".join(f"`{column}`" for column in columns)
        places = ", ".join(["(" + ", ".join(["%s"] * len(columns)) + ")"] * len(rows))
        statement = f"{verb} INTO `{table}` ({names}) VALUES {places}"
        execute(connection, statement, [value for row in rows for value in row])


def fitting(rows: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield the rows in lists that fit into one statement; a list of one row may be larger."""
    chunk: list[T] = []
    room = STATEMENT_BYTES
    for row in rows:
        room -= size(row)
        if chunk and (len(chunk) == STATEMENT_ROWS or room < 0):
            yield chunk
            chunk, room = [], STATEMENT_BYTES - size(row)
        chunk.append(row)
    if chunk:
        yield chunk


def delete(connection: Connection, table: str, ids: Sequence[int], column: str = "id") -> None:
    """Delete the rows with these ids, DELETED_ROWS with each statement."""
    for first in range(0, len(ids), DELETED_ROWS):
        some = ids[first : first + DELETED_ROWS]
        places = ", ".join(["%s"] * len(some))
        execute(connection, f"DELETE FROM `{table}` WHERE `{column}` IN ({places})", some)  # noqa: S608


def _written_for(connection: Connection, statement: str) -> str:
    for table, own in getattr(connection, "ems_names", {}).items():
        statement = statement.replace(table, own)
    if vendor_of(connection) == SQLITE:
        return "%".join(part.replace("%s", "?") for part in statement.split("%%"))
    return statement
