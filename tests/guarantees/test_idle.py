"""What a consumer process costs the database while there is nothing to do."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import connection

from streams.models import Consumer, Step, UtcNow
from streams.models.step import PURGE, RETRIES, SEQUENCE, SWEEP
from streams.steps.of_apps import steps_of_apps
from tests.processes import Spawn
from tests.proxy import Proxy

MySQLdb = pytest.importorskip("MySQLdb")

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.mysql,
    pytest.mark.redis,
    pytest.mark.one_server,
    pytest.mark.slow,
]

GROUPS = 20
CONSUMERS = f"""
from django.core.management import call_command
from streams import consumer

for n in range({GROUPS}):
    consumer("orders", group=f"group-{{n}}", threads=2)(lambda message: None)
    consumer("prices", group=f"all-{{n}}", mode="broadcast")(lambda message: None)
call_command("ems_consume", "--start", "earliest")
"""
# A minute: what is done in each has one turn, or one more, in what is measured.
QUIET_SECONDS, MEASURED_SECONDS = 5.0, 60.0


@pytest.fixture
def steps_run_elsewhere(transactional_db: None) -> Iterator[None]:
    """Celery beat and its worker run every step, as the rows say. To be named before ``proxied``:
    what they ask is theirs."""
    for name in (PURGE, RETRIES, SEQUENCE, SWEEP, *steps_of_apps()):
        Step.objects.create(name=name, last_run_at=UtcNow())
    beat = MySQLdb.connect(**connection.get_connection_params())
    beat.autocommit(True)
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(0.5):
            beat.cursor().execute("UPDATE ems_step SET last_run_at = UTC_TIMESTAMP(6)")

    thread = threading.Thread(target=run)
    thread.start()
    yield
    ended.set()
    thread.join()
    beat.close()


def statements_a_second(proxied: Proxy, spawn: Spawn) -> float:
    spawn(CONSUMERS).expect("database connections")
    while Consumer.objects.live().count() < 2 * GROUPS:
        time.sleep(0.05)
    time.sleep(QUIET_SECONDS)  # what is measured is a process that has been idle for a while
    before = len(proxied.statements)
    time.sleep(MEASURED_SECONDS)
    asked = proxied.statements[before:]
    for beginning, times in Counter(asked).most_common():
        print(times, beginning.decode(errors="replace"))
    return len(asked) / MEASURED_SECONDS


@pytest.mark.exhaustive
def test_with_redis_and_beat_an_idle_process_asks_four_times_a_second_at_most(
    ems_settings: Callable[..., None],
    tmp_path: Path,
    steps_run_elsewhere: None,
    proxied: Proxy,
    spawn: Spawn,
) -> None:
    ems_settings(REDIS="redis", STATE_DIR=str(tmp_path))
    # Of which 1 is the poll, 0.2 look for processes that have died, and 0.7 are those of broadcast.
    assert statements_a_second(proxied, spawn) <= 4


@pytest.mark.exhaustive
def test_alone_an_idle_process_asks_eight_times_a_second_at_most(
    ems_settings: Callable[..., None], tmp_path: Path, proxied: Proxy, spawn: Spawn
) -> None:
    ems_settings(STATE_DIR=str(tmp_path))
    # Four for the stream; in the others it evaluates the alarms, audits, and takes the sample.
    assert statements_a_second(proxied, spawn) <= 8
