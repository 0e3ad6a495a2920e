"""Makes a database with the tables and rows of a release."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

from tests.settings import FOLDER
from tests.upgrades.dump import load, path_of, releases


@pytest.fixture(params=releases())
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def kept(release: str, transactional_db: None, vendor: str) -> Iterator[BaseDatabaseWrapper]:
    """Return a connection to a database that holds what was kept of the release."""
    old = connection.copy()
    name = f"{Path(connection.settings_dict['NAME']).stem}_kept"
    if vendor == "sqlite":
        path = FOLDER / f"{name}.sqlite3"
        path.unlink(missing_ok=True)
        old.settings_dict["NAME"] = str(path)
    else:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS `{name}`")
            cursor.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
        old.settings_dict["NAME"] = name
    try:
        load(path_of(release, vendor), old)
        yield old
    finally:
        old.close()
        if vendor == "sqlite":
            path.unlink()
        else:
            with connection.cursor() as cursor:
                cursor.execute(f"DROP DATABASE `{name}`")


@pytest.fixture
def kept_env(kept: BaseDatabaseWrapper) -> dict[str, str]:
    """Return what lets a process that is spawned work on that database."""
    return {"EMS_TEST_DB_NAME": Path(kept.settings_dict["NAME"]).stem}
