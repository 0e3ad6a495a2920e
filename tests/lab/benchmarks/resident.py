"""Measures what a minute of roll-ups costs: in a process of its own, and in the resident service.

What counts is processor time, of Python, Java and what they start, without the database server: a
busy machine changes it less than seconds. The minutes follow each other at once; each has as many
new messages, done by two groups. With --seconds the service rolls up once a minute for so long, as
it does in production, and what it takes in memory is measured, too.

EMS_BENCH_BEFORE  a checkout of an earlier commit, for example a git worktree, to be compared
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.lab.benchmarks.contender import processor_seconds
from tests.lab.benchmarks.figures import Options, Row
from tests.lab.benchmarks.reading import family
from tests.lab.benchmarks.server import connect, execute
from tests.lab.benchmarks.spark import option_file
from tests.processes import ROOT

# Rolls up once for each line of its standard input.
SERVICE = """
import sys
from sparkjobs.config import Config
from sparkjobs.jobs.serve import roll_up
from sparkjobs.resident.spark import Resident

config, resident = Config.load(sys.argv[1]), Resident()
for _line in sys.stdin:
    roll_up(config.everywhere(), resident)
    print("rolled up", flush=True)
resident.end()
"""
TOPICS, GROUPS, BATCH = 3, 2, 3
LOOK_SECONDS = 0.02


def figures(options: Options) -> Iterator[Row]:
    minutes, messages = (6, 99) if options.quick else (20, 300)
    before = os.environ.get("EMS_BENCH_BEFORE", "")
    checkouts = {"": str(ROOT), **({"before: ": before} if before else {})}
    with tempfile.TemporaryDirectory(prefix="ems-resident-") as folder:
        file = option_file(Path(folder))
        log = Log()
        if options.seconds:
            yield from _lasting(file, log, int(options.seconds // 60), messages)
            return
        for name, checkout in checkouts.items():
            log.add(3 * messages)
            yield _row(f"{name}process of its own", [of_its_own(checkout, file)])
        for name, checkout in checkouts.items():
            with Service(checkout, file) as service:
                found = []
                for _minute in range(minutes):
                    log.add(messages)
                    found.append(service.minute())
                yield _row(f"{name}first minute of the service", found[:1])
                yield _row(f"{name}its minutes {minutes // 2} to {minutes}", found[minutes // 2 :])
                yield _row(f"{name}a minute with nothing to do", [service.minute()])


def _row(name: str, found: list[float]) -> Row:
    row = Row(f"spark, {name}, CPU s", {"median": round(statistics.median(found), 2)})
    print(f"  {row.name}: {row.values} of {[round(value, 2) for value in found]}", flush=True)
    return row


def _lasting(file: Path, log: Log, minutes: int, messages: int) -> Iterator[Row]:
    started = time.monotonic()
    spent: list[float] = []
    with Service(str(ROOT), file) as service:
        for minute in range(1, minutes + 1):
            log.add(messages)
            spent.append(service.minute())
            memory, processes = service.memory()
            print(
                f"  minute {minute}: {spent[-1]:.2f} s, {memory} MB of {processes} processes",
                flush=True,
            )
            time.sleep(max(0.0, started + 60 * minute - time.monotonic()))
    yield _row(f"the last ten of {minutes} minutes", spent[-10:])
    yield Row(f"spark, memory after {minutes} minutes, MB", {"median": memory})


def of_its_own(checkout: str, file: Path) -> float:
    """Return the processor time of one run as beat starts it, with all processes of it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sparkjobs", "--config", str(file), "rollup", "--fallback"],
        env=_environment(checkout),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    spent: dict[int, float] = {}
    while process.poll() is None:
        _look(process.pid, spent)
        time.sleep(LOOK_SECONDS)
    assert process.returncode == 0
    return sum(spent.values())


def _look(pid: int, spent: dict[int, float]) -> None:
    with contextlib.suppress(OSError, IndexError):  # one of them has ended meanwhile
        for one in family(pid):
            spent[one] = processor_seconds(one)


def _environment(checkout: str) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": checkout,
        "PYTHONSAFEPATH": "1",
        "EMS_SPARK_MASTER": "local[2]",
    }


class Service:
    """A process with the session of the service, which rolls up when it is told to."""

    def __init__(self, checkout: str, file: Path) -> None:
        self.environment = _environment(checkout)
        self.command = [sys.executable, "-c", SERVICE, str(file)]
        self.spent: dict[int, float] = {}

    def __enter__(self) -> Service:
        self.process = subprocess.Popen(
            self.command,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(OSError):
            assert self.process.stdin
            self.process.stdin.close()
        self.process.wait(60)

    def minute(self) -> float:
        """Return the processor time of one more roll-up."""
        assert self.process.stdin
        assert self.process.stdout
        before = sum(self.spent.values())
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        while (answer := self.process.stdout.readline().strip()) != "rolled up":
            assert answer, self.command
        _look(self.process.pid, self.spent)
        return sum(self.spent.values()) - before

    def memory(self) -> tuple[int, int]:
        """Return the memory of all its processes in MB, and how many these are.

        It is their PSS: what several have in common counts once.
        """
        sizes: list[int] = []
        with contextlib.suppress(OSError, IndexError):  # one of them has ended meanwhile
            sizes.extend(map(_pss, family(self.process.pid)))
        return sum(sizes) // 1024, len(sizes)


def _pss(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


class Log:
    """Topics to which messages come that two groups have done at once."""

    def __init__(self) -> None:
        from streams.models import ConsumerGroup, Cursor, Topic

        topics = [Topic.objects.create(name=f"bench-minute-{n}") for n in range(TOPICS)]
        self.partitions = [topic.partitions.get().pk for topic in topics]
        self.groups = [
            [ConsumerGroup.objects.create(topic=topic, name=f"group-{n}").pk for n in range(GROUPS)]
            for topic in topics
        ]
        self.end = 0
        for partition, groups in zip(self.partitions, self.groups, strict=True):
            for group in groups:
                Cursor.objects.create(group_id=group, partition_id=partition)

    def add(self, messages: int) -> None:
        """Add so many messages, as if a consumer had just done them."""
        each = messages // TOPICS // BATCH * BATCH
        first, self.end = self.end, self.end + each
        plain = connect()
        for partition, groups in zip(self.partitions, self.groups, strict=True):
            values = ",".join(
                f"({partition}, {n}, '1970-01-01', 'key-{n % 50}', '', 'x', 'text', 1, 'bench',"
                " UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))"
                for n in range(first, self.end)
            )
            _insert(
                plain,
                "ems_msg (partition_id, `offset`, due_at, `key`, tag, body, body_type, size,"
                " producer, created_at, sequenced_at)",
                values,
            )
            execute(
                plain, f"UPDATE ems_partition SET next_offset = {self.end} WHERE id = {partition}"
            )
            values = ",".join(
                f"({group}, {partition}, {n}, {n + BATCH - 1}, {n + BATCH}, 'new', 1, 'c',"
                " 'thread-0', '', 'DONE', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6),"
                " 0, 0, 0, '')"
                for n in range(first, self.end, BATCH)
                for group in groups
            )
            _insert(
                plain,
                "ems_topic_group_log (group_id, partition_id, first_offset, last_offset, progress,"
                " kind, attempt, client_id, thread, token, state, claimed_at, deadline,"
                " finished_at, failed, dead, missing, error)",
                values,
            )
            ids = ", ".join(map(str, groups))
            execute(
                plain,
                f"UPDATE ems_cursor SET next_offset = {self.end}"
                f" WHERE partition_id = {partition} AND group_id IN ({ids})",
            )
        plain.close()


def _insert(plain: Any, into: str, values: str) -> None:
    execute(plain, f"INSERT INTO {into} VALUES {values}")
