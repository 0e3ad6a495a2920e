"""Lets one run at a time work, by a lock that ends with its process, however that ends."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sparkjobs.config import SQLITE, Config
from sparkjobs.database import connected, execute, fetch
from sparkjobs.errors import Busy

# Seconds that the server lets the connection of the lock be silent while Spark works.
WAIT_SECONDS = 7 * 24 * 3600


@contextmanager
def alone(config: Config, name: str) -> Iterator[Callable[[], None]]:
    """Hold the lock ``name`` of this database; raises Busy if another process has it.

    Yields a function that raises Busy if the lock was lost meanwhile, with its connection.
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

        def check() -> None:
            held = "SELECT IS_USED_LOCK(%s) = CONNECTION_ID()"
            if fetch(connection, held, [lock]) != [(1,)]:
                raise busy

        yield check
