"""Tells what a handler leaves on the connection of EMS: the session must be as it was."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

from django.db import Error, connections

from streams.database.remembered import Forgettable
from streams.database.retrying import error_number
from streams.database.sql.dialect import fetch
from streams.database.transactions import new_connection
from streams.logs import event

logger = logging.getLogger("streams.handling")

# What the session may still have after it, a statement tells by its first words. After these the
# session is as it was; after any other one its variables are looked at.
_WORDS = re.compile(r"\s*(\w+)\s*(\w*)")
_HARMLESS = {"SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "SHOW", "EXPLAIN"}
_HARMLESS |= {"SAVEPOINT", "RELEASE"}
_OWN = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"  # for the next transaction of EMS only
_TABLE = re.compile(r"TABLE\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?([^(;]*)", re.IGNORECASE)
# What the statements of EMS rely on; MariaDB has other names for two of them.
_VARIABLES = (
    *("autocommit", "innodb_lock_wait_timeout", "sql_mode", "sql_safe_updates"),
    *("sql_select_limit", "time_zone", "transaction_isolation", "transaction_read_only"),
)
# The errors of EMS's own statements on a session that somebody has changed past Django's cursors:
# tables are locked, or a transaction is open or read-only.
_SPOILT = {1099, 1100, 1192, 1568, 1792}

TRANSACTION, LOCKS, DATABASE = "an open transaction", "locked tables", "another database"

# By alias the variables of a session that nobody has changed.
_fresh: Forgettable[str, Mapping[str, Any]] = Forgettable()
_said: set[tuple[str, str]] = set()


class Session:
    """The session of the connection of this thread: a context, in which its statements are watched.

    What is left is known by the texts of the statements that go through Django's cursors, and by
    the variables of the session, which are read only after a statement that may change them.
    """

    def __init__(self, using: str) -> None:
        self._using = using
        self.connection: Any = connections[using]  # of this thread
        self._driver: Any = None  # the connection of what follows
        self._left: dict[str, None] = {}  # in order
        self._suspicious = False
        self._watch = self._execute

    def __enter__(self) -> None:
        self.connection.execute_wrappers.append(self._watch)

    def __exit__(self, *_error: object) -> None:
        self.connection.execute_wrappers.remove(self._watch)

    def left(self) -> str:
        """Return what was left since the last look, as a text; "" if it is as it was."""
        connection = self.connection
        left: list[str] = []
        suspicious, self._suspicious = self._suspicious, False
        if suspicious:
            left, self._left = list(self._left), {}
        if connection.connection is None:
            return ""
        if connection.connection is not self._driver:
            left, suspicious = [], False  # another one than that of these statements
        sqlite = connection.vendor == "sqlite"
        if left and (connection.in_atomic_block or sqlite):
            # The owner of a block says that it is another transaction. On SQLite Django begins one
            # by a statement and ends it without, and the connection tells.
            left = [one for one in left if one != TRANSACTION]
        if not connection.in_atomic_block:
            if sqlite:
                left += [TRANSACTION] * connection.connection.in_transaction
            elif connection.settings_dict["AUTOCOMMIT"] and not connection.autocommit:
                left.append(TRANSACTION)
        if suspicious and connection.vendor == "mysql":
            left += self._changed()
        return ", ".join(dict.fromkeys(left)) if left else ""

    def mend(self) -> None:
        """Begin a new session, unless a transaction is open, whose owner does so."""
        connection = self.connection
        if connection.in_atomic_block:
            return
        if connection.vendor == "sqlite":  # a database in memory would be gone
            connection.connection.rollback()
        connection.close()

    def _execute(self, execute: Callable[..., Any], sql: str, *arguments: Any) -> Any:
        result = execute(sql, *arguments)
        found = _WORDS.match(sql)
        first, second = (word.upper() for word in found.groups()) if found else ("", "")
        harmless = first in _HARMLESS or (first, second) == ("ROLLBACK", "TO")
        if (not harmless or ";" in sql) and sql != _OWN:
            self._note(first, second, sql)
        return result

    def _note(self, first: str, second: str, sql: str) -> None:
        driver = self.connection.connection
        if driver is not self._driver:
            self._driver, self._left = driver, {}
        self._suspicious = True
        left = self._left
        if first == "BEGIN" or (first, second) == ("START", "TRANSACTION"):
            left.pop(LOCKS, None)
            left[TRANSACTION] = None
        elif first == "COMMIT" or (first == "ROLLBACK" and second != "TO"):
            left.pop(TRANSACTION, None)
        elif first in ("LOCK", "UNLOCK"):
            left.pop(LOCKS, None)
            left |= {LOCKS: None} if first == "LOCK" else {}
        elif (first, second) == ("CREATE", "TEMPORARY"):
            left |= {f"the temporary table {name}": None for name in _tables(sql)[:1]}
        elif first == "DROP":
            for name in _tables(sql):
                left.pop(f"the temporary table {name}", None)
        elif first == "USE":
            left.pop(DATABASE, None)
            if second != str(self.connection.settings_dict["NAME"]).upper():
                left[DATABASE] = None

    def _changed(self) -> list[str]:
        """Return the variables that are not as those of a new connection."""
        try:
            now = _variables(self._using)
            if now == _fresh.get(self._using):
                return []
            # Read again: the server's own may have been changed since.
            with new_connection(self._using):
                fresh = _fresh[self._using] = _variables(self._using)
        except Error:  # the connection is lost
            self.connection.close_if_unusable_or_obsolete()
            return []
        if self.connection.in_atomic_block:
            # Django has turned off the one, and a rehearsal has shortened the other.
            for name in ("autocommit", "innodb_lock_wait_timeout"):
                now[name] = fresh[name]
        return [f"{name}={value}" for name, value in sorted(now.items()) if fresh[name] != value]


def say(handler: str, left: str) -> None:
    """Say once of each handler, and of each kind of thing, what it has left."""
    if (handler, left) in _said:
        return
    _said.add((handler, left))
    logger.warning(
        "%s leaves its connection changed: %s. Each such call fails, and a new connection is made.",
        *(handler, left),
        extra=event("handler.session_changed", handler=handler, left=left),
    )


def spoilt(error: BaseException) -> bool:
    """Tell whether EMS's own statement has failed because of what the session was left with."""
    return isinstance(error, Error) and error_number(error) in _SPOILT


def _tables(sql: str) -> list[str]:
    found = _TABLE.search(sql)
    names = found[1].split(",") if found else []
    return [name.split()[0].strip("`") for name in names if name.split()]


def _variables(using: str) -> dict[str, Any]:
    connection: Any = connections[using]
    old = connection.mysql_is_mariadb
    names = [name.replace("transaction_", "tx_") if old else name for name in _VARIABLES]
    (values,) = fetch(using, "SELECT " + ", ".join(f"@@SESSION.`{name}`" for name in names))
    return dict(zip(_VARIABLES, values, strict=True))
