"""Provides the database that is measured: a new schema on a server that the environment names."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote, urlsplit


class Missing(Exception):
    """Says that the environment names no server of that kind."""


def name() -> str:
    """Holds the database, as this process and its children know it."""
    return os.environ["EMS_TEST_DB_NAME"]


def connect(database: str = "", *, to_server: bool = False) -> Any:
    """Return a plain mysqlclient connection with autocommit and without Django.

    ``database`` is that of the benchmark, if it is not named.
    """
    import MySQLdb

    url = urlsplit(os.environ[f"EMS_TEST_{os.environ['EMS_TEST_DB'].upper()}_URL"])
    return MySQLdb.connect(
        host=url.hostname or "127.0.0.1",
        port=url.port or 3306,
        user=unquote(url.username or "root"),
        password=unquote(url.password or ""),
        charset="utf8mb4",
        autocommit=True,
        **({} if to_server else {"database": database or name()}),
    )


def execute(connection: Any, statement: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []


def choose(kind: str) -> None:
    """Let this process and its children use the server of that kind; raises Missing."""
    variable = f"EMS_TEST_{kind.upper()}_URL"
    if not os.environ.get(variable):
        raise Missing(f"{variable} is not set: run `make bench`, which brings the servers.")
    os.environ.update(
        EMS_TEST_DB=kind,
        EMS_TEST_DB_NAME=f"test_ems_bench_{os.getpid()}",
        DJANGO_SETTINGS_MODULE="tests.lab.benchmarks.settings",
    )


@contextlib.contextmanager
def created(database: str) -> Iterator[None]:
    """Create a database, and drop it at the end."""
    admin = connect(to_server=True)
    execute(admin, f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
    try:
        yield
    finally:
        execute(admin, f"DROP DATABASE {database}")
        admin.close()


@contextlib.contextmanager
def database(kind: str) -> Iterator[None]:
    """Yield a migrated database for this process and its children, and drop it at the end."""
    choose(kind)
    with created(name()):
        import django
        from django.core.management import call_command
        from django.db import connections

        try:
            django.setup()
            call_command("migrate", "ems", verbosity=0)
            call_command("migrate", "ems_monitoring", verbosity=0)
            yield
        finally:
            connections.close_all()


def logged(work: Callable[[], object], database: str = "") -> dict[int, list[str]]:
    """Return the statements of each connection in the server's general log while ``work`` runs.

    Only those of connections to our database, or that one: others may be using the server.
    """
    admin = connect(to_server=True)
    names = ("general_log", "log_output")
    before = [execute(admin, f"SELECT @@GLOBAL.{setting}")[0][0] for setting in names]
    execute(admin, "SET GLOBAL general_log = 0, GLOBAL log_output = 'TABLE'")
    execute(admin, "TRUNCATE mysql.general_log")
    execute(admin, "SET GLOBAL general_log = 1")
    try:
        work()
    finally:
        execute(admin, "SET GLOBAL general_log = 0")
    # While they are still connected.
    ours = {
        row[0]
        for row in execute(
            admin,
            f"SELECT id FROM information_schema.processlist WHERE db = '{database or name()}'",
        )
    }
    rows = execute(
        admin,
        "SELECT thread_id, argument FROM mysql.general_log"
        " WHERE command_type = 'Query' AND argument IS NOT NULL",
    )
    execute(admin, "TRUNCATE mysql.general_log")
    execute(admin, f"SET GLOBAL log_output = '{before[1]}', GLOBAL general_log = {before[0]}")
    admin.close()
    statements: dict[int, list[str]] = {}
    for thread, argument in rows:
        if thread in ours:
            text = (
                argument.decode(errors="backslashreplace")
                if isinstance(argument, bytes)
                else argument
            )
            statements.setdefault(thread, []).append(text)
    return statements


def logged_here(work: Callable[[], object]) -> list[str]:
    """Return the same for what runs on this process' Django connection."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT CONNECTION_ID()")
        (thread,) = cursor.fetchone()
    return logged(work)[thread]
