"""Notices tests that empty the tables of EMS: the rows that a process has cached are gone then.

Django's flush sends post_migrate, but not after a TransactionTestCase with ``serialized_rollback``
or ``available_apps``. So in a test process the statements themselves are watched.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.core import mail
from django.db.backends.base.base import BaseDatabaseWrapper

from streams.database.remembered import forget

CACHED = ("ems_topic", "ems_partition", "ems_system_config")
# The whole name: a purge deletes from ems_topic_group_log.
NAMED = re.compile(rf"\b({'|'.join(CACHED)})\b")


def in_test_process() -> bool:
    """Tell whether tests run in this process, by Django's runner or pytest-django.

    Both call setup_test_environment() before they make a database, and only then mail has an
    outbox.
    """
    return hasattr(mail, "outbox")


def watch(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Watch a new connection, if this is a test process."""
    if in_test_process() and _watched not in connection.execute_wrappers:
        # The first one: ``with connection.execute_wrapper(…)`` removes the last one at its end.
        connection.execute_wrappers.insert(0, _watched)


def _watched(execute: Callable[..., Any], sql: str, *arguments: Any) -> Any:
    result = execute(sql, *arguments)
    if sql.startswith(("DELETE", "TRUNCATE")) and NAMED.search(sql):
        forget()
    return result
