"""Makes one call of a handler in transactions, on all databases, and rolls all of them back."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, Error, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.translation import gettext as _

from streams.consume.outcome.failure import Failure
from streams.database.retrying import retrying, transient
from streams.database.sql.dialect import fetch
from streams.database.transactions import short_lock_waits
from streams.errors import NotRehearsable

DUMMY = "django.db.backends.dummy"
# A call waits at most this number of seconds for a row that others have locked.
LOCK_SECONDS = 2

WORDS = re.compile(r"(?:[\s(]|--[^\n]*\n|/\*.*?\*/)*(\w+)(?:\s+(\w+))?", re.DOTALL)
READS = {"SELECT", "SHOW", "EXPLAIN", "DESCRIBE", "DESC", "SET", "SAVEPOINT", "RELEASE", "ROLLBACK"}
ENDS = {"COMMIT", "BEGIN", "START", "END", "XA"}
# After these MySQL and MariaDB commit by themselves.
COMMITS = {
    *("ALTER", "ANALYZE", "CREATE", "DROP", "FLUSH", "GRANT", "INSTALL", "LOCK", "OPTIMIZE"),
    *("RENAME", "REPAIR", "RESET", "REVOKE", "TRUNCATE", "UNINSTALL", "UNLOCK"),
}


@dataclass(frozen=True)
class UndoneCall:
    """What came of a call; ``unclear`` is what kept the rehearsal from finding out.

    If it ``ended`` a transaction, what it wrote before that may be committed.
    """

    failures: list[Failure]
    error: BaseException | None
    seconds: float
    unclear: BaseException | None
    ended: bool


class Undone:
    """Calls that are undone on all databases; those of an atomic handler are on ``using``."""

    def __init__(self, using: str, *, atomic: bool) -> None:
        self.aliases = databases()
        self._using = using
        self._atomic = atomic
        self._unsafe = {alias: _without_transactions(alias) for alias in self.aliases}

    def call(self, call: Callable[[], list[Failure]]) -> UndoneCall:
        failures: list[Failure] = []
        error: BaseException | None = None
        began = time.monotonic()
        with _rolled_back(self.aliases), ExitStack() as stack:
            savepoints = {alias: connections[alias].savepoint() for alias in self.aliases}
            depth = {alias: len(connections[alias].atomic_blocks) for alias in self.aliases}
            watch = _Watch(self._unsafe, depth, self._atomic)
            for alias in self.aliases:
                stack.enter_context(connections[alias].execute_wrapper(watch))
            try:
                failures = self._within(call)
            except KeyboardInterrupt:
                raise
            except BaseException as raised:  # noqa: BLE001 - whatever a handler raises
                error = raised
            seconds = time.monotonic() - began
            stack.close()
            ended = [alias for alias, name in savepoints.items() if _ended(alias, name)]
        unclear = watch.refused or watch.disturbed
        # After a deadlock the server has rolled back by itself.
        return UndoneCall(failures, error, seconds, unclear, bool(ended) and not watch.disturbed)

    def _within(self, call: Callable[[], list[Failure]]) -> list[Failure]:
        if not self._atomic:
            return call()
        with transaction.atomic(using=self._using):
            failures = call()
            connections[self._using].validate_no_broken_transaction()
            return failures


@dataclass
class _Watch:
    """A watch over the statements of one call: it refuses what could not be undone.

    ``unsafe`` are the tables of each alias whose rows a rollback does not take back; ``depth`` is
    the number of transaction blocks around the call.
    """

    unsafe: dict[str, set[str]]
    depth: dict[str, int]
    atomic: bool
    refused: NotRehearsable | None = None
    disturbed: BaseException | None = None  # a lock, a deadlock, a lost connection

    def __call__(self, execute: Any, sql: Any, parameters: Any, many: bool, context: Any) -> Any:
        connection = context["connection"]
        if problem := self._problem(connection, str(sql)):
            # Noted, too: a handler that catches the error would seem to pass.
            self.refused = NotRehearsable(f"{problem} {sql!s:.200}")
            raise self.refused
        self._forgive(connection)
        try:
            return execute(sql, parameters, many, context)
        except Error as error:
            if transient(error):
                self.disturbed = error
            raise

    def _problem(self, connection: BaseDatabaseWrapper, statement: str) -> str:
        match = WORDS.match(statement)
        verb, second = (str(word or "").upper() for word in match.groups()) if match else ("", "")
        commits = verb in ENDS or (verb == "ROLLBACK" and second != "TO")
        if connection.vendor == "mysql":
            commits = commits or (verb in COMMITS and second != "TEMPORARY")
            commits = commits or (verb == "SET" and "autocommit" in statement.lower())
        if commits:
            return _("A rehearsal cannot undo a statement that ends the transaction:")
        if verb not in READS:
            for table in self.unsafe[connection.alias]:
                if re.search(rf"\b{re.escape(table)}\b", statement):
                    return _("A rehearsal cannot undo a write to a table without transactions:")
        return ""

    def _forgive(self, connection: Any) -> None:
        """Let a handler without ``atomic`` go on after a statement that has failed.

        In a consumer it is in no transaction that such a statement could break.
        """
        if connection.needs_rollback and not self.atomic:
            blocks = len(connection.atomic_blocks) - self.depth[connection.alias]
            if not blocks or not any(connection.savepoint_ids[-blocks:]):
                connection.needs_rollback = False


def databases() -> list[str]:
    """Return the aliases of all databases of the project."""
    return [one for one in connections if connections[one].settings_dict["ENGINE"] != DUMMY]


@contextmanager
def _rolled_back(aliases: list[str]) -> Iterator[None]:
    with ExitStack() as stack:
        for alias in aliases:
            stack.enter_context(short_lock_waits(alias, LOCK_SECONDS))
            block: Any = transaction.atomic(using=alias)
            # As in a TestCase, of which Django and EMS know that nothing of it is ever committed: a
            # handler may open durable blocks, and a missing topic is created in this transaction.
            block._from_testcase = True
            stack.enter_context(block)
            # With the transaction go its on_commit callbacks, and so the wake-ups of send().
            stack.callback(transaction.set_rollback, True, alias)
        yield


def _ended(alias: str, savepoint: Any) -> bool:
    """Tell whether the transaction is another one than at the savepoint, which ends with it."""
    connection = connections[alias]
    if connection.closed_in_transaction or connection.connection is None:
        return False  # the handler has closed the connection, and the server has rolled back
    connection.needs_rollback = False
    try:
        connection.savepoint_rollback(savepoint)
    except DatabaseError:
        return True
    return False


def _without_transactions(alias: str) -> set[str]:
    """Return the tables whose engine cannot roll back, such as MyISAM."""
    if connections[alias].vendor != "mysql":
        return set()
    # Once in a rehearsal. TABLES and ENGINES are tables of the server itself.
    statement = (
        "SELECT t.TABLE_NAME FROM information_schema.TABLES t"
        " JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE"
        " WHERE t.TABLE_SCHEMA = DATABASE() AND e.TRANSACTIONS <> 'YES'"
    )
    return {str(row[0]) for row in retrying(fetch, alias, alias, statement, [])}
