"""Keeps a driver from connecting anew by itself, in a session that is not as Django left it.

PyMySQL does so where Django asks whether a connection still works: ``ping()`` opens another one,
at the isolation level of the server, and Django goes on as if it were the old one. Then the
transactions of EMS would not be at READ COMMITTED, and its locks would block senders.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from weakref import proxy

from django.db.backends.base.base import BaseDatabaseWrapper


def forbid(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Let ``ping()`` of a new connection of PyMySQL only say whether the connection works."""
    driver = connection.connection
    if type(driver).__module__.partition(".")[0] == "pymysql":
        # A proxy: a connection that holds itself would stay open until the garbage is collected.
        driver.ping = partial(type(driver).ping, proxy(driver), reconnect=False)
