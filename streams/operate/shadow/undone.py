"""Runs one call of a handler in transactions, on all databases, that are then rolled back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.db import DatabaseError, connections, transaction
from django.db.backends.signals import connection_created
from django.utils.translation import gettext as _

from streams.consume.outcome.failure import Failure
from streams.database.sql.dialect import fetch
from streams.errors import TransactionEnded
from streams.operate.shadow.collector import Collector
from streams.operate.shadow.statement import Written
from streams.signals import topic_created

# Call again after a deadlock or a lock wait: other transactions are at work.
TRIES = 3
DUMMY = "django.db.backends.dummy"


@dataclass(frozen=True)
class Result:
    """Holds what one call has done; ``callbacks`` is the number of its on_commit callbacks."""

    wrote: list[Written] = field(default_factory=list)
    sent: list[Written] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    error: BaseException | None = None
    callbacks: int = 0


class Undone:
    """Makes calls whose writes are undone; ``using`` is the alias of EMS."""

    def __init__(self, using: str, *, atomic: bool) -> None:
        self._using = using
        self._atomic = atomic
        self.aliases = self.databases(using)
        self._unsafe = {alias: _without_transactions(alias) for alias in self.aliases}

    @staticmethod
    def databases(using: str) -> list[str]:
        """Return the aliases whose writes are undone, that of EMS first."""
        real = [one for one in connections if connections[one].settings_dict["ENGINE"] != DUMMY]
        return [using, *(one for one in real if one != using)]

    def call(self, call: Callable[[], list[Failure]]) -> Result:
        """Make the call and undo what it has written; return what it was.

        Raises ShadowRefused if the handler does what cannot be undone, and TransactionEnded if a
        transaction was committed or rolled back under it.
        """
        for left in reversed(range(TRIES)):
            collector = Collector(self._using, self._unsafe, self._atomic)
            result, ended = self._try(call, collector)
            if collector.refused:
                raise collector.refused
            if collector.contended and left:
                continue
            if ended and not collector.contended:
                raise TransactionEnded
            break
        return result

    def _try(self, call: Callable[[], list[Failure]], collector: Collector) -> tuple[Result, bool]:
        failures: list[Failure] = []
        error: BaseException | None = None
        with rolled_back(self.aliases), ExitStack() as stack:
            savepoints = {alias: connections[alias].savepoint() for alias in self.aliases}
            before = {alias: len(connections[alias].run_on_commit) for alias in self.aliases}
            for alias in self.aliases:
                collector.depth[alias] = len(connections[alias].atomic_blocks)
                wrapper = connections[alias].execute_wrapper(collector.wrapper(alias))
                stack.enter_context(wrapper)
            stack.enter_context(_no_other_connections(collector))
            try:
                failures = self._within(call)
            except KeyboardInterrupt:
                raise
            except BaseException as raised:  # noqa: BLE001 - whatever a handler raises
                error = raised
            stack.close()
            callbacks = sum(_callbacks(alias, since) for alias, since in before.items())
            ended = [alias for alias, name in savepoints.items() if _ended(alias, name)]
        result = Result(collector.wrote, collector.sent, failures, error, callbacks)
        return result, bool(ended)

    def _within(self, call: Callable[[], list[Failure]]) -> list[Failure]:
        if not self._atomic:
            return call()
        with transaction.atomic(using=self._using):
            failures = call()
            connections[self._using].validate_no_broken_transaction()
            return failures


@contextmanager
def rolled_back(aliases: list[str]) -> Iterator[None]:
    """Open a transaction on each of the databases, and roll all of them back at the end."""
    with ExitStack() as stack:
        for alias in aliases:
            block: Any = transaction.atomic(using=alias)
            # As in a TestCase, of which Django and EMS know that nothing of it is ever committed: a
            # handler may open durable blocks, and a missing topic is created in this transaction.
            block._from_testcase = True
            stack.enter_context(block)
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


def _callbacks(alias: str, since: int) -> int:
    """Count the on_commit callbacks of the handler; those of EMS are wake-ups."""
    return sum(not _of_ems(entry[1]) for entry in connections[alias].run_on_commit[since:])


def _of_ems(callback: Any) -> bool:
    while isinstance(callback, partial):
        callback = callback.func
    if getattr(callback, "__self__", None) is topic_created:
        return True
    return str(getattr(callback, "__module__", "")).startswith("streams.")


@contextmanager
def _no_other_connections(collector: Collector) -> Iterator[None]:
    """Refuse connections that are opened now: what is written there is committed."""

    def refuse(connection: Any, **kwargs: Any) -> None:
        connection.close()
        raise collector.refuse(
            _("The handler opens another connection to %(alias)s, in the thread %(thread)s.")
            % {"alias": connection.alias, "thread": threading.current_thread().name}
        )

    connection_created.connect(refuse, weak=False)
    try:
        yield
    finally:
        connection_created.disconnect(refuse)


def _without_transactions(alias: str) -> set[str]:
    """Return the tables whose engine cannot roll back, such as MyISAM."""
    if connections[alias].vendor != "mysql":
        return set()
    # Once in a run. TABLES and ENGINES are tables of the server itself.
    statement = (
        "SELECT t.TABLE_NAME FROM information_schema.TABLES t"
        " JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE"
        " WHERE t.TABLE_SCHEMA = DATABASE() AND e.TRANSACTIONS <> 'YES'"
    )
    return {str(row[0]) for row in fetch(alias, statement, [])}
