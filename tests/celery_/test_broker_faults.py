"""Workers of Celery that die, freeze, or lose the database: nothing is lost, little is repeated."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.db import transaction

from streams.celery.supply import Supply
from streams.models import (
    Consumer,
    ConsumerGroup,
    DeadMessage,
    Delivery,
    Kind,
    RetryMessage,
    UtcNow,
)
from streams.models.consumer import LEASE
from streams.observe.audit.walk import audit
from tests.celery_.broker import deadly, marked, record
from tests.celery_.workers import WORKER, Pool
from tests.faults import Relay
from tests.hostapp.models import Handled, Order
from tests.processes import Child, Spawn, wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

PATIENCE = 120


class Marks:
    """What has run: a line of a file for each start of a task."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[tuple[str, int]]:
        if not self.path.exists():
            return []
        lines = (line.split() for line in self.path.read_text().splitlines())
        return [(name, int(pid)) for name, pid in lines]

    def wait_for(self, more: int, child: Child) -> None:
        """Wait until more tasks than now have begun."""
        before = len(self.lines())
        wait_for(lambda: len(self.lines()) > before + more, child.text)

    def times(self) -> Counter[str]:
        return Counter(name for name, _pid in self.lines())


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Marks:
    path = tmp_path / "marks"
    monkeypatch.setenv("EMS_TEST_MARKS", str(path))
    return Marks(path)


@pytest.fixture(autouse=True)
def wake_ups(request: pytest.FixtureRequest, ems_settings: Callable[..., None]) -> None:
    """Let the tests that have Redis use it."""
    if request.node.get_closest_marker("redis"):
        ems_settings(REDIS="redis")


def some(sample: int, all_: int) -> pytest.MarkDecorator:
    """Parametrize a test by how often the fault comes."""
    marks = [pytest.mark.exhaustive, pytest.mark.redis, pytest.mark.timeout(3600)]
    every = pytest.param(all_, marks=marks, id="with-wake-ups")
    return pytest.mark.parametrize("faults", [pytest.param(sample, id="sample"), every])


def send(number: int, seconds: float = 0.02, start: int = 0) -> set[str]:
    names = {f"t{n}" for n in range(start, start + number)}
    with transaction.atomic():
        for name in sorted(names):
            marked.delay(name, seconds)
    return names


def all_done(marks: Marks, names: set[str], child: Child) -> float:
    """Wait until all have run and are settled; return the seconds that took."""
    began = time.monotonic()
    wait_for(lambda: names <= set(marks.times()), child.text, PATIENCE)
    seconds = time.monotonic() - began
    wait_for(
        lambda: not Delivery.objects.open().exists() and not RetryMessage.objects.exists(),
        child.text,
        PATIENCE,
    )
    assert not DeadMessage.objects.exists()
    assert audit("default") == []
    return seconds


def repeated(marks: Marks) -> int:
    return sum(times - 1 for times in marks.times().values())


@some(1, 100)
def test_the_main_process_is_killed(pool: Pool, marks: Marks, faults: int) -> None:
    """Of each process of the pool one task is repeated; what had not begun spends no attempt."""
    names: set[str] = set()
    for _ in range(faults):
        names |= send(40, start=len(names))
        child = pool.worker("-c", "2")
        marks.wait_for(5, child)
        os.kill(child.pid, signal.SIGKILL)
        child.process.wait()
        # Some workers are killed before they have ended the claims of those before them. The last
        # one does it, by what the files say, however long the leases of a slow machine take.
        Consumer.objects.update(lease_until=UtcNow(10 * LEASE))
    child = pool.worker("-c", "2")
    print(f"done after {all_done(marks, names, child):.1f} s, {repeated(marks)} repeated")
    assert repeated(marks) <= 2 * faults
    # A retry that is claimed and has not begun comes back with the same attempt.
    retries = Delivery.objects.filter(kind=Kind.RETRY).values(
        "partition", "first_offset", "attempt"
    )
    assert retries.distinct().count() <= 2 * faults


KILLED_IN_ITS_LOOP = """\
import os, signal
from celery.concurrency.asynpool import AsynPool
from kombu.asynchronous.hub import Hub
results, ready, turn = [], AsynPool.on_job_ready, Hub._pop_ready
def on_job_ready(self, *args):
    results.append(args)
    return ready(self, *args)
def pop_ready(self):
    if len(results) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return turn(self)
AsynPool.on_job_ready, Hub._pop_ready = on_job_ready, pop_ready
"""


@pytest.mark.exhaustive
def test_a_task_whose_result_was_read_is_not_repeated(
    pool: Pool, spawn: Spawn, marks: Marks
) -> None:
    """Killed before the next turn of its loop, when its one process has got no other task."""
    names = send(8, 0)
    killed = spawn(KILLED_IN_ITS_LOOP + WORKER, "w@test", "-c", "1")
    killed.wait()
    assert sum(marks.times().values()) == 3
    all_done(marks, names, pool.worker("-c", "1"))
    assert repeated(marks) == 0


@pytest.mark.exhaustive
def test_no_task_stays_in_the_worker_when_there_is_no_other_to_fetch(
    pool: Pool, marks: Marks
) -> None:
    child = pool.worker("-c", "2")
    for n in range(3):
        all_done(marks, send(100, 0, start=100 * n), child)
    assert repeated(marks) == 0


@pytest.mark.exhaustive
@some(2, 100)
def test_a_process_of_the_pool_is_killed(pool: Pool, marks: Marks, faults: int) -> None:
    child = pool.worker("-c", "2")
    names: set[str] = set()
    for _ in range(faults):
        names |= send(20, start=len(names))
        marks.wait_for(3, child)
        with suppress(ProcessLookupError):
            os.kill(marks.lines()[-1][1], signal.SIGKILL)
    all_done(marks, names, child)
    assert repeated(marks) <= faults


@pytest.fixture
def one_retry() -> None:
    Supply("celery", "celery.celery", "default").open()
    ConsumerGroup.objects.update(max_retries=1)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("one_retry")
def test_a_task_that_kills_its_worker_is_dead_after_its_retries(pool: Pool, marks: Marks) -> None:
    """It is noted as begun before its process has it; what had not begun is not repeated."""
    deadly.delay("deadly", whole=True)
    names = send(6, 0)
    for _ in range(2):
        pool.worker("-c", "1").wait()
    child = pool.worker("-c", "1")
    wait_for(lambda: DeadMessage.objects.exists(), child.text)
    wait_for(lambda: names <= set(marks.times()), child.text)
    assert marks.times() == {"deadly": 2} | dict.fromkeys(names, 1)


@pytest.mark.exhaustive  # the pool waits ten seconds for what a dead process may have said
@pytest.mark.usefixtures("one_retry")
def test_a_task_that_kills_its_process_is_dead_after_its_retries(pool: Pool, marks: Marks) -> None:
    child = pool.worker("-c", "1")
    deadly.delay("deadly", whole=False)
    wait_for(lambda: DeadMessage.objects.exists(), child.text)
    assert marks.times() == {"deadly": 2}


@pytest.mark.exhaustive
@pytest.mark.parametrize("faults", [5])
def test_a_frozen_worker_loses_what_it_has_and_runs_no_more_of_it(
    pool: Pool, marks: Marks, faults: int
) -> None:
    for n in range(faults):
        frozen = pool.another("-c", "1")
        send(30, 0.1, start=30 * n)
        marks.wait_for(2, frozen)
        frozen.freeze()
        Consumer.objects.update(lease_until=UtcNow(-10 * LEASE))  # as after a long time
        other = pool.another("-c", "2")
        all_done(marks, {f"t{m}" for m in range(30 * (n + 1))}, other)
        frozen.thaw()
        more = send(5, start=10_000 * (n + 1))
        all_done(marks, more, frozen)
        # In its one process ran one task, and as many as it had taken already may wait there.
        assert repeated(marks) <= 6 * (n + 1)
        for child in (frozen, other):
            child.terminate()
            child.wait()


@pytest.fixture
def relay(vendor: str) -> Iterator[Relay]:
    url = urlsplit(os.environ[f"EMS_TEST_{vendor.upper()}_URL"])
    relay = Relay(url.hostname or "", url.port or 3306)
    relay.start()
    yield relay
    relay.stop()


@pytest.mark.mysql
@some(1, 10)
def test_while_the_database_is_away_the_worker_waits(
    spawn: Spawn, marks: Marks, relay: Relay, vendor: str, faults: int
) -> None:
    env = {f"EMS_TEST_{vendor.upper()}_URL": f"mysql://root@127.0.0.1:{relay.port}/"}
    child = Pool(spawn, env).worker("-c", "2")
    names: set[str] = set()
    for _ in range(faults):
        names |= send(30, 0.05, start=len(names))
        marks.wait_for(5, child)
        relay.stop()
        child.expect("waits for the database")
        relay.start()
    all_done(marks, names, child)
    assert repeated(marks) == 0, child.text()
    child.terminate()
    child.succeed()


@pytest.mark.exhaustive
@pytest.mark.mysql
def test_a_worker_ends_in_seconds_while_the_database_is_away(
    spawn: Spawn, marks: Marks, relay: Relay, vendor: str
) -> None:
    env = {f"EMS_TEST_{vendor.upper()}_URL": f"mysql://root@127.0.0.1:{relay.port}/"}
    child = Pool(spawn, env).worker("-c", "1")
    relay.stop()
    child.expect("waits for the database")
    child.terminate()
    child.wait()  # with a limit: without one in the worker it would never end


@pytest.mark.exhaustive
@pytest.mark.parametrize("pool_of", ["threads", "solo"])
def test_other_pools_are_killed(pool: Pool, marks: Marks, pool_of: str) -> None:
    names = send(40)
    child = pool.worker("-P", pool_of, "-c", "2")
    wait_for(lambda: len(marks.lines()) > 5, child.text)
    child.kill()
    child = pool.worker("-P", pool_of, "-c", "2")
    all_done(marks, names, child)
    assert repeated(marks) <= 2
    child.terminate()
    child.succeed()


@pytest.mark.exhaustive
def test_what_a_worker_gives_back_at_its_end_has_spent_no_attempt(pool: Pool, marks: Marks) -> None:
    names = send(12, 0.3)
    child = pool.worker("-c", "1")
    wait_for(lambda: marks.lines(), child.text)
    child.terminate()
    child.succeed()
    assert not Delivery.objects.held().exists()
    assert not RetryMessage.objects.exists()
    assert not Consumer.objects.exists()
    all_done(marks, names, pool.worker("-c", "8"))
    assert repeated(marks) == 0


# -- the transaction --


def test_of_what_is_rolled_back_nothing_runs(pool: Pool) -> None:
    for n in range(20):
        with suppress(ZeroDivisionError), transaction.atomic():
            record.delay(f"rolled back {n}")
            raise ZeroDivisionError
        record.delay(f"sent {n}")
    child = pool.worker("-c", "2")
    wait_for(lambda: Handled.objects.count() == 20, child.text)
    assert not Handled.objects.filter(value__startswith="rolled").exists()


HOLD = """\
import pathlib, sys, time
from django.db import transaction
from tests.celery_.broker import record
with transaction.atomic():
    record.delay("late")
    print("sent", flush=True)
    while not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.01)
"""


@pytest.mark.mysql
def test_a_task_whose_transaction_commits_late_runs_after_it(
    pool: Pool, spawn: Spawn, tmp_path: Path
) -> None:
    child = pool.worker("-c", "2")
    producer = spawn(HOLD, tmp_path / "commit")
    producer.expect("sent")
    for n in range(20):
        record.delay(f"sent {n}")
    wait_for(lambda: Handled.objects.count() == 20, child.text)
    assert not Handled.objects.filter(value="late").exists()
    (tmp_path / "commit").touch()
    wait_for(lambda: Handled.objects.filter(value="late").exists(), child.text)


PRODUCE = """\
import itertools, os
from django.db import transaction
from tests.celery_.broker import record
from tests.hostapp.models import Order
for n in itertools.count():
    with transaction.atomic():
        name = f"{os.getpid()}-{n}"
        Order.objects.create(number=name)
        record.delay(name)
    print("sent", flush=True)
"""


@pytest.mark.exhaustive
@some(2, 10)
def test_producers_are_killed_and_there_are_as_many_tasks_as_orders(
    pool: Pool, spawn: Spawn, faults: int
) -> None:
    for n in range(faults):
        producer = spawn(PRODUCE)
        for _ in range(3 + n):
            producer.expect("sent")
        producer.kill()
    child = pool.worker("-c", "2")
    orders = set(Order.objects.values_list("number", flat=True))
    values = Handled.objects.values_list("value", flat=True)
    wait_for(lambda: set(values.all()) >= orders, child.text)
    wait_for(lambda: not Delivery.objects.open().exists(), child.text)
    assert Handled.objects.count() == len(orders)
    assert set(values.all()) == orders
