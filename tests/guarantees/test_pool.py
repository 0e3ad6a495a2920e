"""One pool of threads for all groups of a process: connections, slow groups, limits. Real processes
of ``ems_consume``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from urllib.parse import urlsplit

import pytest
from django.db import connection

from streams import Outgoing, send, send_many
from streams.models import Consumer, Delivery, State
from streams.observe.audit.walk import audit
from tests.hostapp.models import Handled
from tests.processes import Spawn, wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
    pytest.mark.slow,
]

GROUPS = 30
MANY = f"""
import sys
from streams import consumer
from django.core.management import call_command
for number in range({GROUPS} - 1):
    consumer("orders", group=f"group-{{number}}")(lambda message: None)
consumer("orders", group="cache", mode="broadcast")(lambda message: None)
call_command("ems_consume", "--start", "earliest", *sys.argv[1:])
"""


def sessions(user: str = "") -> int:
    """Count the connections to the test database, without that of the test."""
    only = "AND user = %s" if user else ""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT COUNT(*) FROM information_schema.processlist"
            f" WHERE db = DATABASE() AND id <> CONNECTION_ID() {only}",
            [user] if user else [],
        )
        return int(cursor.fetchone()[0])


def done() -> int:
    """Count the messages that all groups have handled."""
    rows = Delivery.objects.filter(state=State.DONE).values_list("first_offset", "last_offset")
    return sum(last + 1 - first for first, last in rows)


@pytest.mark.exhaustive
@pytest.mark.mysql
def test_thirty_groups_take_eight_threads_and_twelve_connections(
    spawn: Spawn, ems_settings: Callable[..., None]
) -> None:
    ems_settings(POLL_SECONDS=0.05)
    before, most = sessions(), 0
    child = spawn(MANY)
    assert "8 threads, up to 12 database" in child.expect("database connections")
    for number in range(10):
        send_many([Outgoing("orders", n) for n in range(20)])

        def handled(count: int = (number + 1) * 20 * (GROUPS - 1)) -> bool:
            nonlocal most
            most = max(most, sessions() - before)
            return done() == count

        wait_for(handled, done)
    print(f"{GROUPS} groups: {most} connections")
    assert 4 <= most <= 12
    child.terminate()
    text = child.succeed()
    assert "cache on orders: 200 handled" in text
    assert not any(audit("default"))
    assert not Consumer.objects.exists()


SLOW = """
import sys, threading, time
from streams import consumer
from tests.hostapp.models import Handled
from django.core.management import call_command

def note(what, message):
    Handled.objects.create(group=what, topic=message.topic, partition=0, offset=message.offset)

@consumer("orders", group="slow", threads=20)
def slow(message):
    note("begun", message)
    while not Handled.objects.filter(group="go").exists():
        time.sleep(0.02)

running, counting = [], threading.Lock()

@consumer("payments", group="good", threads=2)
def good(message):
    with counting:
        running.append(message.offset)
        beside = len(running)
    time.sleep(0.002)
    with counting:
        running.remove(message.offset)
    note(f"good {beside}", message)

@consumer("payments", group="other")
def other(message):
    note("other", message)

call_command("ems_consume", "--start", "earliest", "--batch", "1", "--threads", "4")
"""


def others_have(count: int) -> bool:
    return noted("good") == noted("other") == count


def noted(what: str) -> int:
    return Handled.objects.filter(group__startswith=what).count()


def test_a_group_whose_handler_waits_leaves_a_thread_for_the_others(
    spawn: Spawn, ems_settings: Callable[..., None]
) -> None:
    """Each message of the others is handled while all calls of the slow group stand still."""
    ems_settings(POLL_SECONDS=0.05)
    send_many([Outgoing("orders", n) for n in range(50)])
    child = spawn(SLOW)
    wait_for(lambda: noted("begun") == 3, "three of four threads")
    for number in range(1, 21):
        send("payments", number)
        wait_for(partial(others_have, number), "the others")
    assert noted("begun") == 3
    Handled.objects.create(group="go", topic="", partition=0, offset=0)
    wait_for(lambda: noted("begun") == 50, "the slow group")
    child.terminate()
    child.succeed()
    assert not any(audit("default"))


def test_a_group_has_never_more_threads_than_its_own(
    spawn: Spawn, ems_settings: Callable[..., None]
) -> None:
    ems_settings(POLL_SECONDS=0.05)
    Handled.objects.create(group="go", topic="", partition=0, offset=0)
    send_many([Outgoing("payments", n) for n in range(200)])
    child = spawn(SLOW)
    wait_for(partial(others_have, 200))
    child.terminate()
    child.succeed()
    beside = Handled.objects.filter(group__startswith="good").values_list("group", flat=True)
    assert set(beside) <= {"good 1", "good 2"}


# -- a server without a connection left ---------------------------------------------------------

FEW = """
import time
from streams import consumer
from django.core.management import call_command
for group in ("mail", "bills"):
    consumer("orders", group=group)(lambda message: time.sleep(0.02))
call_command("ems_consume", "--start", "earliest", "--batch", "1")
"""


@pytest.fixture
def few(transactional_db: None) -> Iterator[dict[str, str]]:
    """Make an account that may have four connections; return what a child needs to use it."""
    name = str(connection.settings_dict["NAME"])
    variable = f"EMS_TEST_{os.environ['EMS_TEST_DB'].upper()}_URL"
    url = urlsplit(os.environ[variable])
    with connection.cursor() as cursor:
        cursor.execute("DROP USER IF EXISTS 'few'@'%'")
        cursor.execute("CREATE USER 'few'@'%' WITH MAX_USER_CONNECTIONS 4")
        cursor.execute(f"GRANT ALL ON `{name}`.* TO 'few'@'%'")
    yield {variable: f"mysql://few@{url.hostname}:{url.port}/"}
    with connection.cursor() as cursor:
        cursor.execute("DROP USER 'few'@'%'")


@pytest.mark.exhaustive
@pytest.mark.mysql
def test_a_process_goes_on_with_the_connections_it_gets(
    spawn: Spawn, few: dict[str, str], ems_settings: Callable[..., None]
) -> None:
    """Three are the keepers', so one worker handles all. What lacks one says so once."""
    ems_settings(POLL_SECONDS=0.05)
    send_many([Outgoing("orders", n) for n in range(100)])
    child = spawn(FEW, env=few)
    child.expect("no connection left")
    wait_for(lambda: done() == 200, done)
    assert sessions("few") <= 4
    # A keeper that waits for the worker's is a shortage of its own, which ends.
    said = re.findall("no connection left|No thread lacks", child.text())
    assert all(one != next_one for one, next_one in pairwise(said)), said
    assert "had expired" not in child.text()
    with connection.cursor() as cursor:
        cursor.execute("ALTER USER 'few'@'%' WITH MAX_USER_CONNECTIONS 50")
    send_many([Outgoing("orders", n) for n in range(500)])
    wait_for(lambda: sessions("few") > 4, lambda: sessions("few"))
    child.terminate()
    child.succeed()
    assert not any(audit("default"))
    assert not Consumer.objects.exists()
