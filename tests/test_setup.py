"""What the other tests may rely on: the servers are the ones they are meant to be."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.core.cache import caches
from django.db import connection, transaction

from tests.hostapp.models import Order
from tests.processes import Spawn
from tests.sessions import Session, Threads


def one(sql: str) -> object:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


@pytest.mark.mysql
@pytest.mark.django_db
def test_the_server_is_the_one_that_the_run_is_named_after(vendor: str) -> None:
    version = str(one("SELECT VERSION()"))
    assert ("MariaDB" in version) == (vendor == "mariadb"), version


@pytest.mark.mysql
@pytest.mark.django_db
def test_mariadb_lives_eight_hours_east_of_utc(vendor: str) -> None:
    hours = one("SELECT TIMESTAMPDIFF(HOUR, UTC_TIMESTAMP(), NOW())")
    assert hours == (8 if vendor == "mariadb" else 0), "set default-time-zone as servers.py does"


@pytest.mark.mysql
@pytest.mark.django_db
def test_ids_on_mysql_step_by_three(vendor: str) -> None:
    first, second = (Order.objects.create(number=str(n)).pk for n in range(2))
    assert second - first == (3 if vendor == "mysql" else 1)


@pytest.mark.mysql
@pytest.mark.django_db
def test_text_is_utf8mb4() -> None:
    assert one("SELECT @@character_set_database") == "utf8mb4"
    Order.objects.create(number="1", note="数据 🚚")
    assert Order.objects.get(number="1").note == "数据 🚚"


@pytest.mark.django_db(databases=["default", "other"])
def test_the_aliases_are_databases_of_their_own() -> None:
    Order.objects.using("other").create(number="1")
    assert not Order.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_child_process_works_on_the_same_database(spawn: Spawn) -> None:
    Order.objects.create(number="parent")
    child = spawn(
        "import sys\n"
        "from tests.hostapp.models import Order\n"
        "print(Order.objects.get().number)\n"
        "Order.objects.create(number=sys.argv[1])",
        "child",
    )
    assert child.succeed() == "parent\n"
    assert Order.objects.filter(number="child").exists()


def test_a_child_process_sees_the_settings_that_the_test_has_changed(
    ems_settings: Callable[..., None], spawn: Spawn
) -> None:
    ems_settings(POLL_SECONDS=0.25)
    child = spawn("from django.conf import settings; print(settings.EMS['POLL_SECONDS'])")
    assert child.succeed() == "0.25\n"


def test_a_management_command_runs_as_a_child_and_dies_with_the_test(spawn: Spawn) -> None:
    assert spawn.command("check").succeed().startswith("System check identified no issues")
    child = spawn("import time; print('up'); time.sleep(600)")
    child.expect("up")
    child.kill()
    assert child.wait() < 0


def test_a_second_connection_commits_on_its_own(
    second_connection: Callable[..., Session],
) -> None:
    other = second_connection()
    with other.active():
        transaction.set_autocommit(False)
        Order.objects.create(number="late")
    assert not Order.objects.exists()
    with other.active():
        transaction.commit()
    assert Order.objects.exists()


def test_a_thread_waits_for_the_lock_of_a_second_connection(
    second_connection: Callable[..., Session], in_thread: Threads
) -> None:
    Order.objects.create(number="1")
    other = second_connection()
    with other.active():
        transaction.set_autocommit(False)
        Order.objects.update(note="locked")
    started = threading.Event()

    def append() -> None:
        started.set()
        order = Order.objects.get()
        with transaction.atomic():
            Order.objects.filter(pk=order.pk).update(note="second")

    writer = in_thread(append)
    assert started.wait(10)
    with other.active():
        transaction.commit()
    writer.result(30)
    assert Order.objects.get().note == "second"


@pytest.mark.redis
def test_redis_keeps_json_not_pickle() -> None:
    cache: Any = caches["redis"]
    cache.set("ems-setup", {"a": [1]}, 10)
    assert cache.get("ems-setup") == {"a": [1]}
    assert json.loads(cache.client.get_client().get(cache.make_key("ems-setup"))) == {"a": [1]}
