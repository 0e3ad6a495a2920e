"""Numbers the statements of handler runs, and says of each where in the project it was made."""

from __future__ import annotations

import linecache
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import asgiref
import django
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from streams.chaos.watching import COMMIT, watching
from streams.database.transactions import in_transaction
from streams.deliver.handling import Handling

# Of EMS's own savepoints: before or after such a statement is as before the next one.
OF_SAVEPOINTS = ("SAVEPOINT", "RELEASE SAVEPOINT", "ROLLBACK TO SAVEPOINT")
WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE")

_NOT_OF_THE_PROJECT = tuple(
    {
        *(str(Path(str(package.__file__)).parent) for package in (django, asgiref)),
        str(Path(__file__).parent.parent),
        *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
        "<",
    }
)


class Died(KeyboardInterrupt):
    """The end of a handler run, as the death of its process would be.

    Neither EMS nor Django treats a KeyboardInterrupt as a failure of the handler.
    """


class DiedInTask(BaseException):
    """Died in a task of asyncio, where a KeyboardInterrupt would end the event loop."""


@dataclass(frozen=True)
class Statement:
    """A statement or COMMIT of a handler run; ``number`` counts from 1.

    ``in_handler``: the handler, or a middleware of the project, was running. ``in_transaction``: on
    any database. ``commits``: it ends a transaction, or is one by itself.
    ``where`` is the line of the project that made it.
    """

    number: int
    text: str
    in_handler: bool
    in_transaction: bool
    commits: bool
    where: str
    offsets: Sequence[int]
    on_sqlite: bool

    def __str__(self) -> str:
        text = " ".join(self.text.split())
        return text if len(text) <= 90 else f"{text[:89]}…"


class StatementFault(Protocol):
    """What happens at the statements of a run: see faults.py."""

    def before(self, statement: Statement) -> None: ...

    def after(self, statement: Statement) -> None: ...


class NoFault:
    """The fault that does nothing."""

    def before(self, statement: Statement) -> None:
        """Do nothing."""

    def after(self, statement: Statement) -> None:
        """Do nothing."""


@dataclass
class Statements:
    """A context in which ``fault`` acts before and after each statement of a run.

    Statements count while a delivery is handled, from the read of its bodies to the end of its
    settlement. Once ``dead``, each further statement fails, whatever the handler catches.
    """

    fault: StatementFault = field(default_factory=NoFault)
    seen: list[Statement] = field(default_factory=list)
    offsets: Sequence[int] = ()  # of the running call, or of the last one
    dead: bool = False
    in_task: bool = False  # an async handler runs
    _handling: Handling | None = None
    _paused: bool = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        with watching(self._around):
            yield

    @contextmanager
    def counting(self, handling: Handling) -> Iterator[None]:
        """Count the statements of the block, in which this delivery is handled."""
        self._handling, self.offsets = handling, ()
        try:
            yield
        finally:
            self._handling = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing in the block: another process works, and this one stands still."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def die(self) -> None:
        """Lose all connections of this thread without a COMMIT, and raise Died."""
        self.dead = True
        for connection in connections.all(initialized_only=True):
            cut(connection)
        raise self._death()

    def revive(self) -> None:
        """Go on as the next process: on new connections."""
        self.dead = False
        for connection in connections.all(initialized_only=True):
            cut(connection)
            connection.close()

    def _death(self) -> BaseException:
        return DiedInTask() if self.in_task else Died()

    def _around(self, connection: BaseDatabaseWrapper, text: str, work: Callable[[], Any]) -> Any:
        if self.dead:
            cut(connection)
            raise self._death()
        if self._handling is None or self._paused or text.startswith("BEGIN"):
            return work()
        if not self._handling.calling and text.startswith(OF_SAVEPOINTS):
            return work()
        statement = self._statement(connection, text, self._handling)
        self.seen.append(statement)
        self.fault.before(statement)
        result = work()
        self.fault.after(statement)
        return result

    def _statement(
        self, connection: BaseDatabaseWrapper, text: str, handling: Handling
    ) -> Statement:
        alone = text.lstrip().upper().startswith(WRITES) and not in_transaction(connection.alias)
        # Without opening those that nobody uses: a test may forbid them.
        used = [one for one in connections.all(initialized_only=True) if one.connection]
        open_ = any(in_transaction(one.alias) for one in used)
        return Statement(
            number=len(self.seen) + 1,
            text=text,
            in_handler=handling.calling,
            in_transaction=open_ or text == COMMIT,
            commits=alone or text == COMMIT,
            where=_where() if handling.calling else "",
            offsets=self.offsets,
            on_sqlite=connection.vendor == "sqlite",
        )


def in_memory(connection: Any) -> bool:
    """Tell whether the database is gone when its connection is closed."""
    return bool(connection.vendor == "sqlite" and connection.is_in_memory_db())


def cut(connection: Any) -> None:
    """End the connection as the server does when its client is dead: what is open is rolled back.

    Callbacks for a commit are forgotten. Django closes no SQLite in memory: that is rolled back.
    """
    connection.run_on_commit = []
    if connection.connection is None:
        return
    if connection.vendor == "sqlite":
        # A cursor with rows that nobody has read keeps a closed SQLite, and its lock, open.
        connection.connection.rollback()
    if not in_memory(connection):
        connection.close()
    elif connection.in_atomic_block:
        connection.needs_rollback = True


def _where() -> str:
    """Return file, line and code of the innermost frame that is code of the project."""
    frame: FrameType | None = sys._getframe(1)
    while frame and frame.f_code.co_filename.startswith(_NOT_OF_THE_PROJECT):
        frame = frame.f_back
    if frame is None:
        return ""
    path, line = frame.f_code.co_filename, frame.f_lineno
    code = linecache.getline(path, line).strip()
    here = Path(path)
    shown = here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else here
    return f"{shown}:{line}: {code}"
