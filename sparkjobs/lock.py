"""One at a time: a lock that ends with its process, however that ends."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sparkjobs.config import SQLITE, Config
from sparkjobs.database import connected, execute, fetch
from sparkjobs.errors import Busy

# The connection waits while Spark works.
WAIT_SECONDS = 7 * 24 * 3600


@contextmanager
def alone(config: Config, name: str) -> Iterator[Callable[[], None]]:
    """Hold the lock ``name`` of this database; raises Busy if somebody has it.

    Gives a function that raises Busy if the lock was lost meanwhile, with its connection.
    """
    busy = Busy(f"another run of {name} is at work")
    if config.vendor == SQLITE:
        # A file beside the database: it is one machine.
        with Path(f"{config.database}.{name}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise busy from error
            yield lambda: None
        return
    with connected(config) as connection:
        execute(connection, "SET SESSION wait_timeout = %s", [WAIT_SECONDS])
        # Names of locks are the server's: another database's must not be in the way. Hashed here:
        # they hold 64 characters, and the newest MySQL has no MD5() any more.
        ((database,),) = fetch(connection, "SELECT DATABASE()")
        lock = hashlib.sha256(f"ems {database} {name}".encode()).hexdigest()
        if fetch(connection, "SELECT GET_LOCK(%s, 0)", [lock]) != [(1,)]:
            raise busy

        def check() -> None:
            held = "SELECT IS_USED_LOCK(%s) = CONNECTION_ID()"
            if fetch(connection, held, [lock]) != [(1,)]:
                raise busy

        yield check
