from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.celery_.workers import Pool
from tests.processes import Child, Spawn

# Not there on a Django that django-celery-beat refuses.
collect_ignore_glob = [] if find_spec("django_celery_beat") else ["test_*.py"]

WORKER = """\
import logging, sys
logging.basicConfig(level="INFO", stream=sys.stdout)
from tests.celery_.app import configured
configured().worker_main(["worker", "-P", "solo", "-l", "INFO", "--without-mingle",
                          "--without-gossip", "-n", sys.argv[1]])
"""
BEAT = """\
import logging, sys
logging.basicConfig(level="INFO", stream=sys.stdout)
from tests.celery_.app import configured
configured().start(["beat", "-l", "INFO", "--pidfile=", *sys.argv[1:]])
"""


@pytest.fixture
def redis_keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the prefix of Celery's keys in this test, and delete them afterwards."""
    from redis import Redis

    prefix = f"ems-test-{uuid4().hex[:8]}-"
    monkeypatch.setenv("EMS_TEST_CELERY_PREFIX", prefix)
    yield prefix
    with closing(Redis.from_url(os.environ["EMS_TEST_REDIS_URL"])) as redis:
        for key in redis.scan_iter(f"{prefix}*"):
            redis.delete(key)


@dataclass
class Celery:
    """Starts workers and beats; they take a second or two until they are at it."""

    spawn: Spawn
    schedule: Path

    def worker(self) -> Child:
        return self.spawn(WORKER, f"{uuid4().hex[:6]}@test")

    def beat(self, scheduler: str = "") -> Child:
        """With the schedule of the setting, or the scheduler that is named."""
        chosen = ["-S", scheduler] if scheduler else ["-s", str(self.schedule)]
        return self.spawn(BEAT, *chosen)


@pytest.fixture
def celery(spawn: Spawn, redis_keys: str, tmp_path: Path) -> Celery:
    return Celery(spawn, tmp_path / "schedule")


@pytest.fixture
def pool(spawn: Spawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    """Start workers whose broker is EMS; results are files."""
    from tests.celery_.broker import broker

    folder = tmp_path / "results"
    folder.mkdir()
    monkeypatch.setenv("EMS_TEST_RESULTS", f"file://{folder}")
    broker.conf.result_backend = f"file://{folder}"
    broker._backend_cache = None
    broker._local = type(broker._local)()
    yield Pool(spawn)
    close_connections(broker)
    broker.close()


def close_connections(app: Any) -> None:
    """Close what kombu keeps open for ``app``: an engine would go on in the next test's tables."""
    from streams.celery import engine

    for pool in (app.amqp.producer_pool, app.pool):
        pool.force_close_all(close_pool=False)
        pool.setup()
    assert not engine._running
