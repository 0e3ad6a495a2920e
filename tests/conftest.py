"""Defines the fixtures for all tests.

Which tests a run has is decided in tiers.py; the markers are explained in pyproject.toml. What is
no part of a run is deselected, which pytest reports, not skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pytest_django import Settings

from tests import report, tiers, timeouts
from tests.faults import Relay, redis_url
from tests.processes import Spawn
from tests.proxy import Proxy
from tests.sessions import Session, Threads
from tests.settings import FOLDER

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure(config: pytest.Config) -> None:
    FOLDER.mkdir(mode=0o700, exist_ok=True)
    config.pluginmanager.register(timeouts)
    if asked := report.plugin():
        config.pluginmanager.register(asked)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # pytest was started in the background. Processes that tests interrupt would inherit this.
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure(config: pytest.Config) -> None:
    if "EMS_TEST_RUN" not in os.environ:  # a named run may be continued with --reuse-db
        shutil.rmtree(FOLDER, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Wait for the threads for which nobody has waited: they use the database."""
    if each := sys.modules.get("streams.database.each"):
        for key, question in list(each._questions.items()):
            question.thread.join(30)
            if not question.thread.is_alive():
                del each._questions[key]  # no test sees what another one was told


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    markexpr = str(config.getoption("markexpr"))
    dropped = [item for item in items if tiers.left_out(item, markexpr)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        gone = set(dropped)
        items[:] = [item for item in items if item not in gone]


@pytest.fixture(scope="session", autouse=True)
def quick_emptying() -> Iterator[None]:
    """Delete what a transactional test has written by emptying.py, not by Django's flush."""
    from django.test import TransactionTestCase

    from tests.emptying import teardown

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", teardown)
        yield


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> None:
    """Begin with empty tables, as every test that follows a transactional one does."""
    from django.db import DatabaseError, connections

    from streams.models import SystemConfig

    with django_db_blocker.unblock():
        for alias in connections:
            with suppress(DatabaseError):  # no test of this run asks for it: it does not exist
                SystemConfig.objects.using(alias).all().delete()


@pytest.fixture(autouse=True)
def _steps_are_asked() -> None:
    """Let each test ask the database whether a step is due, as a new process does."""
    from streams.steps import turns

    turns._ask_at.clear()


@pytest.fixture(scope="session", autouse=True)
def _claims_are_kept() -> Iterator[None]:
    """Let no claim of a test give its messages to others because the machine is busy."""
    from streams.deliver import handling

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handling, "LONG_SECONDS", 3600.0)
        yield


@pytest.fixture(scope="session")
def vendor() -> str:
    """Return the database of this run: ``sqlite``, ``mariadb`` or ``mysql``."""
    return os.environ.get("EMS_TEST_DB", "sqlite")


@pytest.fixture
def ems_settings(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Change keys of EMS for this test: ``ems_settings(REDIS="redis", POLL_SECONDS=0.1)``.

    Holds in this process and in the children it spawns afterwards; values must be JSON.
    """

    def change(**keys: Any) -> None:
        settings.EMS = {**settings.EMS, **keys}
        monkeypatch.setenv("EMS_TEST_EMS", json.dumps(settings.EMS))

    return change


@pytest.fixture
def clean_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unregister all consumers and check-backs, so that there are only those of this test."""
    from streams.consume import registry
    from streams.two_phase import registry as checkbacks

    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(checkbacks, "_registered", {})


@pytest.fixture
def process_env(transactional_db: None) -> dict[str, str]:
    """Return what to add to os.environ so that a child process uses this run's test database.

    Depends on ``transactional_db``: a child sees only what is committed.
    """
    from django.db import connections

    name = str(connections["default"].settings_dict["NAME"])
    return {
        "DJANGO_SETTINGS_MODULE": os.environ["DJANGO_SETTINGS_MODULE"],
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]]),
        "EMS_TEST_DB_NAME": Path(name).stem if name.endswith(".sqlite3") else name,
        "EMS_TEST_FOLDER": str(FOLDER),
    }


@pytest.fixture
def spawn(process_env: dict[str, str]) -> Iterator[Spawn]:
    """Start real Python processes on the test database; they are killed when the test ends.

    ``spawn("from tests.hostapp.models import Order; print(Order.objects.count())")`` runs code,
    ``spawn.command("ems_consume", "--drain")`` a management command. Both return a Child, which is
    waited for by what it prints (``expect``) or by its end (``succeed``), never by a duration.
    """
    spawn = Spawn(process_env, forks=True)
    yield spawn
    spawn.close()


@pytest.fixture
def second_connection(transactional_db: None) -> Iterator[Callable[..., Session]]:
    """Open a second session on the test database: ``other = second_connection()``.

    It commits and locks on its own. Closed, and so rolled back, when the test ends.
    """
    sessions: list[Session] = []

    def connect(alias: str = "default") -> Session:
        sessions.append(Session(alias))
        return sessions[-1]

    yield connect
    for session in sessions:
        session.close()


@pytest.fixture
def in_thread(transactional_db: None) -> Iterator[Threads]:
    """Run a function in a thread with connections of its own: ``in_thread(function, 1).result()``.

    Use it for what blocks: the test goes on while the other session waits for a lock.
    """
    threads = Threads()
    yield threads
    threads.close()


@pytest.fixture
def away(transactional_db: None) -> Iterator[None]:
    """Make the database unreachable for this test."""
    from django.db import connection

    given = connection.settings_dict
    before = dict(given)
    connection.close()
    given.update({"NAME": "/nowhere/x.sqlite3"} if connection.vendor == "sqlite" else {"PORT": "1"})
    yield
    given.update(before)
    connection.close()


@pytest.fixture
def isolation_level(transactional_db: None) -> Iterator[Callable[[str], None]]:
    """Connect again as a host with another isolation level does: ``isolation_level("…")``.

    Here, in other threads and in second connections; not in child processes. Needs ``mysql``.
    """
    from django.db import connection

    options = connection.settings_dict["OPTIONS"]  # the dict that all threads share

    def change(level: str) -> None:
        options["isolation_level"] = level
        connection.close()

    yield change
    options.pop("isolation_level", None)
    connection.close()


@pytest.fixture
def proxied(
    request: pytest.FixtureRequest, transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Proxy]:
    """Connect the alias ``default`` through a proxy, here and in children spawned later.

    For another alias: ``@pytest.mark.parametrize("proxied", ["other"], indirect=True)``; children
    use the proxy for all aliases. Mark such tests ``mysql``.
    """
    from django.db import connections

    alias = getattr(request, "param", "default")
    # The connections of all threads share this dict.
    given = connections[alias].settings_dict
    variable = f"EMS_TEST_{os.environ['EMS_TEST_DB'].upper()}_URL"
    url = urlsplit(os.environ[variable])
    with Proxy(given["HOST"], given["PORT"]) as proxy:
        account = url.netloc.rpartition("@")[0]
        monkeypatch.setenv(variable, f"mysql://{account}@{proxy.host}:{proxy.port}/")
        with monkeypatch.context() as patch:
            patch.setitem(given, "HOST", proxy.host)
            patch.setitem(given, "PORT", str(proxy.port))
            connections[alias].close()
            yield proxy
        connections[alias].close()


@pytest.fixture
def relay(settings: Settings) -> Iterator[Relay]:
    """Return a relay before Redis, which the test can stop."""
    url = urlsplit(os.environ["EMS_TEST_REDIS_URL"])
    relay = Relay(url.hostname or "127.0.0.1", url.port or 6379)
    relay.start()
    settings.CACHES = {
        **settings.CACHES,
        "redis": {**settings.CACHES["redis"], "LOCATION": redis_url(relay)},
    }
    yield relay
    relay.stop()
