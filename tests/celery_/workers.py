"""Starts Celery workers on EMS for tests."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

from tests.processes import Child, Spawn

WORKER = """\
import logging, os, sys
os.environ["C_FORCE_ROOT"] = "1"  # where tests run as root
logging.basicConfig(level="INFO", format="%(asctime)s %(message)s", stream=sys.stdout)
from tests.celery_.broker import broker
broker.worker_main(["worker", "-l", "INFO", "-n", *sys.argv[1:]])
"""


@dataclass
class Pool:
    """The workers of a test."""

    spawn: Spawn
    env: dict[str, str] | None = None

    def worker(self, *words: str, name: str = "w@test") -> Child:
        """Start a worker, with two processes if nothing is said, and wait until it is ready."""
        child = self.spawn(WORKER, name, *(words or ("-c", "2")), env=self.env)
        child.expect("ready")
        return child

    def another(self, *words: str) -> Child:
        return self.worker(*words, name=f"{uuid4().hex[:6]}@test")
