"""Loads a server as ``ems_stress`` does: sizes and writers, and what a steady rate costs.

Each run is bounded in time and in bytes. It is the code of the command without its last step: the
topics are not deleted one by one, which takes 11 s each, but with the database. How fast consumers
are is measured beside, without writers: else it would be the rate of the writers.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterator
from itertools import count
from typing import Any

from tests.lab.benchmarks.consume.log import Log
from tests.lab.benchmarks.consume.processes import Consumers, Line, Spent
from tests.lab.benchmarks.contender import Contender, processor_seconds, server_pid, this
from tests.lab.benchmarks.figures import Options, Row, Value

KB = 1024
SIZES = {f"{size:,} KB": size * KB for size in (1, 10, 100, 1000)}  # those of the first EMS
WRITERS = (1, 8, 20)
SECONDS = 5
BYTES, MESSAGES = 60 * KB * KB, 10_000  # the most of one run
# What consumers handle in each of so many rounds.
HANDLED_BYTES, HANDLED_MESSAGES, ROUNDS = 200 * KB * KB, 20_000, 3
HANDLER = """
from django.core.management import call_command
from streams import consumer

@consumer("bench-{name}", group="ours")
def take(message):
    message.body

call_command("ems_consume", "--start", "earliest")
"""
# As the record of the first EMS has it: so many messages of 1 KB a second, sent by two processes.
RATES = (5, 10, 50, 100, 200, 400)
RATE_SECONDS = 12
RATE_WRITERS, RATE_GROUPS = 2, 2  # each message is handled twice; in the record 1.5 times

RUN = """
import json, sys
from dataclasses import asdict
from streams.stress import Load, Stress
from streams.operate.topics import create

load = Load(**json.loads(sys.argv[1]))
create(load.topic, 1, "default")
result = Stress(load, "default", lambda left: None).run()
print(json.dumps({**asdict(load), **asdict(result), "sound": result.sound}))
"""
_numbers = count()


def sizes(options: Options) -> Iterator[Row]:
    """Send as fast as so many writers can, while one group consumes."""
    bound = 20 if options.quick else 1
    for title, size in SIZES.items():
        for writers in (1, 8) if options.quick else WRITERS:
            messages = max(writers, min(MESSAGES, BYTES // size) // bound)
            found = Run(this(), size=size, writers=writers, messages=messages, seconds=SECONDS)
            sent = found.said["accepted"] / max(0.001, found.said["sending_seconds"])
            values: dict[str, Value] = {
                "size": title,
                "writers": writers,
                "messages": found.said["accepted"],
                "sent/s": round(sent, 1),
                "MB/s": round(sent * size / KB / KB, 2),
                "send p50, ms": found.said["send_ms"].get("p50"),
                "send p99, ms": found.said["send_ms"].get("p99"),
                "client CPU, µs": found.micros(found.client_seconds),
                "server CPU, µs": found.micros(found.server_seconds),
                "lock waits": found.said["row_lock_waits"],
                "missing": found.missing,
                "repeated": sum(found.said["repeated"].values()),
            }
            yield Row(f"{title}, {writers} writers", values, failure=found.failure)


def handling(options: Options) -> Iterator[Row]:
    """Let three processes handle a log that is there, one message at a time, at the defaults."""
    for title, size in SIZES.items():
        bound = 20 if options.quick else 1
        messages = min(HANDLED_MESSAGES, HANDLED_BYTES // size) // bound
        line = Line(f"size-{size}", title, HANDLER, messages)
        log = Log(this(), f"bench-{line.name}", messages, ["ours"], size=size)
        consumers = Consumers(this(), line, log)
        try:
            consumers.round(messages)
            consumers.spent = Spent()
            speed = statistics.median([consumers.round(messages) for _ in range(ROUNDS)])
        finally:
            consumers.close()
            log.plain.close()
        spent = consumers.spent
        values: dict[str, Value] = {
            "messages": messages,
            "handled/s": round(speed, 1),
            "MB/s": round(speed * size / KB / KB, 2),
            "client CPU, µs": round(spent.micros(spent.client_seconds), 1),
            "server CPU, µs": round(spent.micros(spent.server_seconds), 1),
        }
        yield Row(title, values)


def rates(options: Options) -> Iterator[Row]:
    """Send at a steady rate; what share of the machine the server and the clients need."""
    for rate in RATES[:2] if options.quick else RATES:
        seconds = 3 if options.quick else RATE_SECONDS
        many = {"writers": RATE_WRITERS, "groups": RATE_GROUPS}
        found = Run(this(), rate=rate, seconds=seconds, **many)
        machine = found.said["consuming_seconds"] * (os.cpu_count() or 1) / 100
        values: dict[str, Value] = {
            "rate": rate,
            "sent/s": round(found.said["accepted"] / found.said["sending_seconds"], 1),
            "clients, %": round(found.client_seconds / machine, 1),
            "server, %": round(found.server_seconds / machine, 1),
            "CPU, %": round((found.client_seconds + found.server_seconds) / machine, 1),
            "send to handler p50, ms": found.said["delivery_ms"].get("p50"),
            "send to handler p99, ms": found.said["delivery_ms"].get("p99"),
            "missing": found.missing,
        }
        yield Row(f"{rate}/s", values, failure=found.failure)


class Run:
    """Runs one load; holds what it said, and the processor time of clients and server."""

    def __init__(self, contender: Contender, **changed: float) -> None:
        given = {"messages": None, "seconds": None, "rate": None, "size": KB, "groups": 1}
        load = {"topic": f"stress.{next(_numbers)}", **given, **changed}
        plain = contender.connect()
        server = server_pid(plain)
        plain.close()
        spawn = contender.spawn(REDIS="redis", POLL_SECONDS=1.0)
        before = processor_seconds(server) if server else 0.0
        try:
            said = spawn(RUN, json.dumps(load)).succeed(timeout=180)
        finally:
            spawn.close()
        self.server_seconds = processor_seconds(server) - before if server else 0.0
        self.said: dict[str, Any] = json.loads(said.splitlines()[-1])
        self.client_seconds = float(self.said["processor_seconds"])

    @property
    def missing(self) -> int:
        lost = self.said["accepted"] - self.said["committed"]
        return int(max(0, lost) + sum(self.said["missing"].values()))

    @property
    def failure(self) -> str:
        if self.missing or not self.said["sound"]:
            return f"{self.missing} messages are missing"
        if self.said["errors"]:
            return f"errors: {self.said['errors']}"
        return ""

    def micros(self, seconds: float) -> float:
        """Return microseconds for each message."""
        messages = max(1, int(self.said["accepted"]))
        return round(seconds / messages * 1e6, 1)
