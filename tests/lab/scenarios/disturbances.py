"""Disturbs the processes and servers of a scenario while they work.

Each is a generator: it does one thing, then yields the seconds to the next. The stage runs it until
all has been consumed and it has done its share.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from random import SystemRandom
from typing import TYPE_CHECKING

import MySQLdb
import redis
from django.core.management import CommandError, call_command
from django.db import Error, connection

from monitoring.models import Run

if TYPE_CHECKING:
    from tests.lab.scenarios.fleet import Process
    from tests.lab.scenarios.stage import Stage

Disturbance = Callable[["Stage"], Iterator[float]]

RESTART_AFTER = 3.0  # seconds, as in the seed
PAST_THE_LEASE = 20.0

chance = SystemRandom()


def nothing(stage: Stage) -> Iterator[float]:
    """Disturb nothing."""
    yield 0.0


def kill(stage: Stage) -> Iterator[float]:
    """kill -9 of a random consumer, restarted after 3 s; producers die in mid-transaction."""
    for n in range(stage.rounds(small=2, full=8)):
        doomed = stage.producer(f"doomed{n}", "A=50", "B=50", "--doomed")
        victim = chance.choice(stage.consumers)
        victim.kill()
        stage.say(f"killed {victim.name}")
        yield RESTART_AFTER
        victim.start()
        if doomed.says("doomed"):
            doomed.kill()
            stage.say("killed a producer before its commit")
        yield chance.uniform(1.0, 4.0)


def freeze(stage: Stage) -> Iterator[float]:
    """SIGSTOP of a consumer past its lease; SIGCONT."""
    for _ in range(stage.rounds(small=1, full=4)):
        victim = chance.choice(stage.consumers)
        victim.freeze()
        stage.say(f"froze {victim.name}")
        yield PAST_THE_LEASE
        victim.thaw()
        yield 3.0


def order(stage: Stage) -> Iterator[float]:
    """Consumers of an ordered group are killed and frozen while handlers fail."""
    for _ in range(stage.rounds(small=2, full=8)):
        victim, sleeper = chance.sample(stage.consumers, 2)
        sleeper.freeze()
        victim.kill()
        stage.say(f"killed {victim.name}, froze {sleeper.name}")
        yield RESTART_AFTER
        victim.start()
        yield PAST_THE_LEASE - RESTART_AFTER
        sleeper.thaw()
        yield 3.0


def redis_(stage: Stage) -> Iterator[float]:
    """FLUSHALL, then stopped, then started again."""
    client = redis.Redis.from_url(stage.redis.url)
    for _ in range(stage.rounds(small=1, full=3)):
        client.flushall()
        stage.say("flushed Redis")
        yield 1.0
        stage.crash(stage.redis)
        stage.say("killed Redis")
        yield 5.0
        stage.restart(stage.redis)
        yield 3.0


def database(stage: Stage) -> Iterator[float]:
    """kill -9 of the database server, and its restart."""
    for _ in range(stage.rounds(small=1, full=3)):
        stage.crash(stage.database)
        stage.say("killed the database")
        yield 2.0
        stage.restart(stage.database)
        yield 8.0


def truncate(stage: Stage) -> Iterator[float]:
    """ALTER TABLE and TRUNCATE of ems_msg under load: what was not consumed is gone, counted."""
    for _ in range(stage.rounds(small=1, full=3)):
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE ems_msg COMMENT = 'altered under load', ALGORITHM=INPLACE")
            stage.say("altered ems_msg")
        yield 1.0
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE TABLE ems_msg")
            stage.say("truncated ems_msg")
        yield 3.0


def sever(stage: Stage) -> Iterator[float]:
    """Let the server end all other connections."""
    for _ in range(stage.rounds(small=3, full=15)):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT ID FROM information_schema.PROCESSLIST"
                " WHERE DB = DATABASE() AND ID <> CONNECTION_ID()"
            )
            others = [row[0] for row in cursor.fetchall()]
            for other in others:
                try:
                    cursor.execute(f"KILL {other:d}")
                except MySQLdb.Error:
                    continue  # it has gone by itself
                except Exception as error:  # noqa: BLE001 - Django's name for the same
                    stage.say(str(error))
        stage.say(f"ended {len(others)} connections")
        yield 2.0


def beat(stage: Stage) -> Iterator[float]:
    """Celery worker and beat beside the consumers, stopped and started again."""
    for _ in range(stage.rounds(small=1, full=3)):
        stage.beat.start()
        stage.say("started Celery beat")
        yield 6.0
        stage.beat.stop()
        stage.say("stopped Celery beat")
        yield 3.0
    stage.beat.start()


def spark(stage: Stage) -> Iterator[float]:
    """kill -9 of the service that rolls up, of a consumer and of the database, again and again."""
    limit = time.monotonic() + (stage.seconds or stage.rounds(small=75, full=3600))
    while time.monotonic() < limit:
        for service in stage.services:
            yield from _a_roll_up(limit)
            yield chance.uniform(0.0, 8.0)
            service.kill()
            stage.say(f"killed {service.name}")
            victim = chance.choice(stage.consumers)
            victim.kill()
            stage.say(f"killed {victim.name}")
            yield RESTART_AFTER
            service.start()
            victim.start()
            yield from _a_roll_up(limit)
            yield from database(stage)
            for process in (*stage.consumers, *stage.services):
                if process.status is not None:
                    stage.say(f"{process.name} had ended with status {process.status}")
                    process.start()
    stage.end_producers()


def _a_roll_up(limit: float) -> Iterator[float]:
    """Wait for the end of one that begins now: a service killed in its start would show nothing."""
    last = _newest_roll_up()
    while time.monotonic() < limit and _newest_roll_up() in (last, None):
        yield 0.5


def _newest_roll_up() -> int | None:
    try:
        runs = Run.objects.filter(job="backlog", state="done", seconds__gt=0)
        return runs.order_by("-pk").values_list("pk", flat=True).first()
    except Error:
        connection.close()
        return None


def http(stage: Stage) -> Iterator[float]:
    """Web server, clients that pull, Redis and the database are killed; the web server frozen."""
    (web,), clients = stage.services, stage.pullers
    acts: list[Callable[[], Iterator[float]]] = [
        lambda: _again(stage, web),
        lambda: _again(stage, chance.choice(clients)),
        lambda: redis_(stage),
        lambda: database(stage),
        lambda: _frozen(stage, web),
    ]
    for _ in range(stage.rounds(small=1, full=4)):
        chance.shuffle(acts)
        for act in acts:
            yield from act()
            for process in (*stage.consumers, web, *clients):
                if process.status is not None:
                    stage.say(f"{process.name} had ended with status {process.status}")
                    process.start()


def two_phase(stage: Stage) -> Iterator[float]:
    """Callers, checkers and the database are killed, and connections end, at a steady rate."""
    acts: list[Callable[[], Iterator[float]]] = [
        lambda: _again(stage, chance.choice(stage.producers)),
        lambda: _again(stage, chance.choice(stage.consumers)),
        lambda: _again(stage, chance.choice(stage.producers)),
        lambda: database(stage),
        lambda: sever(stage),
    ]
    for _ in range(stage.rounds(small=1, full=6)):
        chance.shuffle(acts)
        for act in acts:
            yield from act()
            for process in (*stage.consumers, *stage.producers):
                if process.status is not None:
                    stage.say(f"{process.name} had ended with status {process.status}")
                    process.start()
    stage.end_producers()


def _again(stage: Stage, process: Process) -> Iterator[float]:
    process.kill()
    stage.say(f"killed {process.name}")
    yield RESTART_AFTER
    process.start()
    yield RESTART_AFTER


def _frozen(stage: Stage, process: Process) -> Iterator[float]:
    process.freeze()
    stage.say(f"froze {process.name}")
    yield PAST_THE_LEASE
    process.thaw()
    yield RESTART_AFTER


def everything(stage: Stage) -> Iterator[float]:
    """Ten minutes (small: one) of all of it at once, and operators who do not wait for quiet."""
    limit = time.monotonic() + stage.rounds(small=60, full=600)
    acts: list[Callable[[], Iterator[float] | None]] = [
        lambda: kill(stage),
        lambda: freeze(stage),
        lambda: redis_(stage),
        lambda: sever(stage),
        lambda: database(stage),
        lambda: beat(stage),
        lambda: _operate(stage, "ems_groups", "reset", "Group4", "--to=-500", "--force", "--yes"),
        lambda: _operate(stage, "ems_groups", "undo", "Group4", "--force", "--yes"),
        lambda: _operate(stage, "ems_groups", "replay", "Group4", "--yes", *_the_last(seconds=20)),
        lambda: _operate(stage, "ems_purge"),
        lambda: _operate(stage, "ems_groups", "pause", "Group2"),
        lambda: _operate(stage, "ems_groups", "resume", "Group2"),
    ]
    while time.monotonic() < limit:
        # One disturbance at a time breaks something, and ends; operators are there all the time.
        turn = chance.choice(acts)()
        yield from turn or iter([1.0])
        # As a process manager does.
        for process in stage.consumers:
            if process.status is not None:
                stage.say(f"{process.name} had ended with status {process.status}")
                process.start()
    _operate(stage, "ems_groups", "resume", "Group2")
    stage.end_producers()


def _the_last(seconds: float) -> tuple[str, ...]:
    now = datetime.now(UTC)
    return "--from", (now - timedelta(seconds=seconds)).isoformat(), "--to", now.isoformat()


def _operate(stage: Stage, *words: str) -> None:
    stage.say(" ".join(words))
    try:
        call_command(*words, stdout=StringIO(), stderr=StringIO())
    except (CommandError, Error) as error:
        stage.say(f"  {error}")
        connection.close()


DISTURBANCES: dict[str, Disturbance] = {
    "consistency": nothing,
    "kill": kill,
    "freeze": freeze,
    "order": order,
    "redis": redis_,
    "database": database,
    "truncate": truncate,
    "sever": sever,
    "beat": beat,
    "everything": everything,
    "spark": spark,
    "http": http,
    "two-phase": two_phase,
}
