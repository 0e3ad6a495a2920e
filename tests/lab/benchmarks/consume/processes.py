"""The processes of ``ems_consume`` that are measured; between their rounds they are stopped."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.lab.benchmarks.consume.log import Log
from tests.lab.benchmarks.contender import (
    POLL_SECONDS,
    Contender,
    processor_seconds,
    server_pid,
)
from tests.lab.benchmarks.server import execute

PROCESSES = 3
TRIES = 100
CACHED_SECONDS = 0.15  # what the server shows of its transactions is at most 0.1 s old
IN_TRANSACTION = (
    "SELECT 1 FROM information_schema.innodb_trx t JOIN information_schema.processlist p"
    " ON p.id = t.trx_mysql_thread_id WHERE p.db = DATABASE() AND p.id <> CONNECTION_ID() LIMIT 1"
)

BATCH_HANDLER = """
from django.core.management import call_command
from streams import consumer

@consumer("bench-{name}", group="ours", batch=100)
def do_nothing(messages):
    pass

call_command("ems_consume", "--start", "earliest", "--group", "ours", "--threads", "1")
"""
DEFAULT_HANDLER = """
from django.core.management import call_command
from streams import consumer

@consumer("bench-{name}", group="ours")
def do_nothing(message):
    pass

call_command("ems_consume", "--start", "earliest", "--group", "ours")
"""


@dataclass(frozen=True)
class Line:
    """Names what is consumed, and how: one line of the figures."""

    name: str
    title: str
    code: str
    counted: int  # messages that are behind when the statements are counted


LINES = {
    line.name: line
    for line in (
        Line("batch", f"batch 100, {PROCESSES} processes", BATCH_HANDLER, 60_000),
        Line("defaults", "one-message handler, defaults", DEFAULT_HANDLER, 20_000),
    )
}


@dataclass
class Spent:
    """Adds up what the rounds have handled and used."""

    messages: int = 0
    client_seconds: float = 0.0
    server_seconds: float = 0.0

    def micros(self, seconds: float) -> float:
        return seconds / max(1, self.messages) * 1e6


class Consumers:
    """Runs the consumers of one line in one checkout, stopped but while they have a round."""

    def __init__(self, contender: Contender, line: Line, log: Log) -> None:
        self._log = log
        self._server = server_pid(log.plain)
        self.spent = Spent()
        self._spawn = contender.spawn()
        self._children = [self._spawn(line.code.format(name=line.name)) for _ in range(PROCESSES)]
        try:
            for child in self._children:
                child.expect("database connections")
            self._freeze()
        except BaseException:
            self.close()
            raise

    def round(self, messages: int) -> float:
        """Let them consume so many; return the speed, in messages a second."""
        time.sleep(2 * POLL_SECONDS)  # so that all look at once when they go on
        self._log.rewind("ours", messages)
        before = self._used()
        for child in self._children:
            child.thaw()
        self._log.wait("ours", messages)
        client, server = self._used()
        self._freeze()
        self.spent.messages += messages
        self.spent.client_seconds += client - before[0]
        self.spent.server_seconds += server - before[1]
        return self._log.speed("ours")

    def close(self) -> None:
        for child in self._children:
            if child.process.poll() is None:
                child.thaw()
                child.terminate()
        for child in self._children:
            child.wait()
        self._spawn.close()

    def _freeze(self) -> None:
        """Stop all of them, at a moment when none is in a transaction: its locks would stay."""
        for _ in range(TRIES):
            for child in self._children:
                child.freeze()
            time.sleep(CACHED_SECONDS)
            if not execute(self._log.plain, IN_TRANSACTION):
                return
            for child in self._children:
                child.thaw()
            time.sleep(POLL_SECONDS / 3)
        raise AssertionError("the consumers are always in a transaction")

    def _used(self) -> tuple[float, float]:
        for child in self._children:
            assert child.process.poll() is None, f"a consumer has ended:\n{child.text()}"
        clients = sum(processor_seconds(child.pid) for child in self._children)
        return clients, processor_seconds(self._server) if self._server else 0.0
