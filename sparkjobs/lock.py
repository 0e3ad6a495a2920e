"""Lets one run at a time work, by a lock that ends with its process, however that ends."""

from __future__ import annotations

import fcntl
import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sparkjobs.config import SQLITE, Config
from sparkjobs.database import Connection, connected, execute, fetch
from sparkjobs.errors import Busy

# The name of the lock of the resident service: see resident/service.py.
SERVE = "serve"
# The name of the one that it holds for its namespace: it does the jobs of the night of no other.
NIGHTS = "nights"
# A host that has vanished or stands still closes no connection. So the server ends one that was
# silent for this many seconds, and with it the lock; a thread speaks on it every PING_SECONDS.
WAIT_SECONDS = 120
PING_SECONDS = 20.0


@contextmanager
def alone(config: Config, name: str) -> Iterator[Callable[[], None]]:
    """Hold the lock ``name`` of this database; raises Busy if another process has it.

    Yields a function that raises Busy if the lock was lost meanwhile, or an error of the driver if
    its connection was.
    """
    busy = Busy(f"another run of {name} is at work")
    if config.vendor == SQLITE:
        # A lock file beside the database is enough, since SQLite is used on one machine.
        with Path(f"{config.database}.{name}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise busy from error
            yield lambda: None
        return
    with connected(config) as connection:
        execute(connection, "SET SESSION wait_timeout = %s", [WAIT_SECONDS])
        # All databases of a server share the names of locks, so the name of the database is in it.
        # It is hashed here: a name has at most 64 characters, and the newest MySQL has no MD5().
        ((database,),) = fetch(connection, "SELECT DATABASE()")
        lock = hashlib.sha256(f"ems {database} {name}".encode()).hexdigest()
        if fetch(connection, "SELECT GET_LOCK(%s, 0)", [lock]) != [(1,)]:
            raise busy
        one_at_a_time = threading.Lock()  # a connection of the driver serves one thread at a time

        def check() -> None:
            held = "SELECT IS_USED_LOCK(%s) = CONNECTION_ID()"
            with one_at_a_time:
                if fetch(connection, held, [lock]) != [(1,)]:
                    raise busy

        try:
            with _spoken_on(connection, one_at_a_time):
                yield check
        finally:
            # The server ends a session some time after its connection was closed.
            with suppress(Exception):
                fetch(connection, "SELECT RELEASE_LOCK(%s)", [lock])


def is_held(config: Config, name: str) -> bool:
    """Tell whether a process has the lock ``name`` now."""
    try:
        with alone(config, name):
            return False
    except Busy:
        return True


@contextmanager
def _spoken_on(connection: Connection, one_at_a_time: threading.Lock) -> Iterator[None]:
    """Speak on the connection every PING_SECONDS, from a thread of its own."""
    end = threading.Event()

    def speak() -> None:
        while not end.wait(PING_SECONDS):
            # An error is for whoever works under the lock: see the function that alone() yields.
            with suppress(Exception), one_at_a_time:
                fetch(connection, "SELECT 1")

    thread = threading.Thread(target=speak, name="ems-lock", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
