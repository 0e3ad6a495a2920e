"""Makes faults for tests: processes that die at a chosen statement, reads that miss rows.

Nothing here needs a hook in the code under test: Django lets a caller wrap each statement, and
COMMIT is one method of its connections.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self

import pytest
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.models import Model

from streams.chaos.watching import watching
from streams.routers import LABELS
from tests.sessions import Session


def strides(some: int, all_: int = 1) -> pytest.MarkDecorator:
    """Parametrize a test that breaks something at every n-th statement, by ``stride``.

    The test runs with ``some`` on each database. With ``all_``, which takes long, it runs only when
    everything is run, and on MySQL.
    """
    long = [pytest.mark.exhaustive, pytest.mark.one_server, pytest.mark.mysql]
    every = pytest.param(all_, marks=long)
    return pytest.mark.parametrize("stride", [some, every])


class Guillotine:
    """Ends this process, by SIGKILL, before its n-th statement or COMMIT, or ``after`` it.

    To the database, "after one" is the same as "before the next"; to a progress file it is not.
    Install it only in a process that may die: it is never taken off.
    """

    def __init__(self, point: int, *, after: bool = False) -> None:
        self._left = point
        self._after = after

    def install(self) -> None:
        self._watch = watching(self._around)  # kept: it ends with this object
        self._watch.__enter__()

    def _around(self, connection: object, text: str, work: Callable[[], Any]) -> Any:
        self._left -= 1
        last = not self._left
        if last and not self._after:
            os.kill(os.getpid(), signal.SIGKILL)
        done = work()
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return done


@contextmanager
def statements(wrapper: Callable[..., Any], alias: str = "default") -> Iterator[None]:
    """Put ``wrapper`` around the statements of every connection of ``alias``, in all threads.

    It is called as Django calls execute wrappers: (execute, sql, params, many, context).
    """
    wrapped: list[BaseDatabaseWrapper] = []

    def watch(*, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
        if connection.alias == alias and wrapper not in connection.execute_wrappers:
            connection.execute_wrappers.append(wrapper)
            wrapped.append(connection)

    connection_created.connect(watch)
    watch(connection=connections[alias])
    try:
        yield
    finally:
        connection_created.disconnect(watch)
        for connection in wrapped:
            connection.execute_wrappers.remove(wrapper)


class Severed:
    """Ends this thread's connection at the n-th statement or COMMIT: ``with Severed(…):``.

    The server kills it before that one, or, if ``done``, after it: then only the reply is lost.
    Needs a ``session`` of its own to do so, and MySQL.
    """

    def __init__(self, point: int, session: Session, *, done: bool) -> None:
        self._left = point
        self._session = session
        self._done = done

    @property
    def fired(self) -> bool:
        return self._left <= 0

    def __enter__(self) -> Self:
        self._commit = commit = BaseDatabaseWrapper._commit  # type: ignore[attr-defined]

        def risky_commit(connection: BaseDatabaseWrapper) -> Any:
            return self._at_risk(connection, lambda: commit(connection))

        BaseDatabaseWrapper._commit = risky_commit  # type: ignore[attr-defined]
        self._statements = statements(self._statement)
        self._statements.__enter__()
        return self

    def __exit__(self, *_error: object) -> None:
        self._statements.__exit__(None, None, None)
        BaseDatabaseWrapper._commit = self._commit  # type: ignore[attr-defined]

    def _statement(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        return self._at_risk(arguments[-1]["connection"], lambda: execute(*arguments))

    def _at_risk(self, connection: BaseDatabaseWrapper, work: Callable[[], Any]) -> Any:
        if connection is self._session.connection:
            return work()
        self._left -= 1
        if self._left:
            return work()
        if not self._done:
            self._kill(connection)
            return work()
        work()
        self._kill(connection)
        raise OperationalError(2013, "Lost connection to server during query")

    def _kill(self, connection: BaseDatabaseWrapper) -> None:
        self._session.execute(f"KILL {connection.connection.thread_id()}")


class LateCommit:
    """Loses a connection in its first COMMIT, which the server does at the end of the block::

        with LateCommit() as late:
            future = in_thread(work)  # it does its part in ``with late.of_this_thread():``

    Needs MySQL.
    """

    def __init__(self, alias: str = "default") -> None:
        self._alias = alias
        self._driver: Any = None  # of the connection that was lost, with its transaction

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._driver is not None:
            self._driver.commit()
            self._driver.close()

    @contextmanager
    def of_this_thread(self) -> Iterator[None]:
        connection: Any = connections[self._alias]

        def lose() -> None:
            if self._driver is not None:
                BaseDatabaseWrapper._commit(connection)  # type: ignore[attr-defined]
                return
            self._driver, connection.connection = connection.connection, None
            raise OperationalError(2013, "Lost connection to server during query")

        connection._commit = lose
        try:
            yield
        finally:
            del connection._commit


def kill_other_connections(session: Session) -> None:
    """End every connection to the test database, except those of this thread and ``session``."""
    mine = {session.execute("SELECT CONNECTION_ID()")[0][0]}
    mine |= {c.connection.thread_id() for c in connections.all() if c.connection}
    for (id_,) in session.execute(
        "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = DATABASE()"
    ):
        if id_ not in mine:
            with suppress(OperationalError):  # gone by itself meanwhile
                session.execute(f"KILL {id_}")


class Recorder:
    """Records the statements: ``with statements(recorder): …; recorder.seen``."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        self.seen.append(sql)
        return execute(sql, *rest)


class Once:
    """Does something before or instead of the first statement that contains ``text``.

    ``action`` gets the statement as a call without arguments; what it returns is the result.
    """

    def __init__(self, text: str, action: Callable[[Callable[[], Any]], Any]) -> None:
        self._text = text
        self._action = action
        self.fired = False

    def __call__(self, execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if self.fired or self._text not in sql.replace('"', "`"):  # SQLite's quotes
            return execute(sql, *rest)
        self.fired = True
        return self._action(lambda: execute(sql, *rest))


class Astray:
    """A database router that sends all of EMS to another alias: EMS itself asks no router."""

    def __init__(self, alias: str = "other") -> None:
        self._alias = alias

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        return self._alias if model._meta.app_label in LABELS else None

    db_for_write = db_for_read


class Relay:
    """Relays TCP to ``host``:``port``, and can stop, start again, or stop answering."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._links: list[socket.socket] = []
        self._server: socket.socket | None = None
        self._silent = False
        self._swallowed: set[socket.socket] = set()
        self.port = 0

    def start(self) -> None:
        self._server = server = socket.create_server(("127.0.0.1", self.port))
        self.port = server.getsockname()[1]
        threading.Thread(target=self._accept, args=(server,), daemon=True).start()

    def stop(self) -> None:
        """Refuse new connections and end the existing ones."""
        server, self._server = self._server, None
        for side in (server, *self._links):
            if side:
                with suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)
                side.close()
        self._links.clear()

    def silence(self) -> None:
        """Accept new connections and answer nothing, like a host behind a firewall."""
        self._silent = True

    def swallow(self) -> None:
        """Pass nothing more on the existing connections; new ones are served."""
        self._swallowed.update(self._links)

    def _accept(self, server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _address = server.accept()
                self._links.append(client)
                if self._silent:
                    continue
                try:
                    target = socket.create_connection(self._target)
                except OSError:  # the next one may succeed
                    client.close()
                    continue
                self._links.append(target)
                for source, sink in ((client, target), (target, client)):
                    threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if source not in self._swallowed:
                    sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)


def redis_url(relay: Relay) -> str:
    """Return the URL of a Redis behind ``relay``."""
    return f"redis://127.0.0.1:{relay.port}/0"
