"""What is looked at while a sustained load runs: lag, a bystander's queries, history, disk."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

from tests.lab.benchmarks.contender import processor_seconds, server_pid
from tests.lab.benchmarks.server import connect, execute, name
from tests.lab.benchmarks.sustained.traffic import TOPIC

LOOK_SECONDS, HELD_LOOK_SECONDS = 1.0, 10.0  # between two looks at the lag
QUERY_SECONDS = 0.05  # between two queries of the bystander
BYSTANDERS = 1000  # rows of its table
MB = 1e6
# The most that each group has not finished: in the inbox, not claimed, or claimed and not settled.
BEHIND = f"""
SELECT g.name, (SELECT COUNT(*) FROM ems_msg m WHERE m.partition_id = p.id AND m.offset IS NULL)
 + p.next_offset - c.next_offset
 + COALESCE((SELECT SUM(d.last_offset + 1 - d.progress) FROM ems_topic_group_log d
   WHERE d.state = 'START' AND d.group_id = g.id AND d.partition_id = p.id), 0)
FROM ems_topic t JOIN ems_partition p ON p.topic_id = t.id JOIN ems_group g ON g.topic_id = t.id
JOIN ems_cursor c ON c.group_id = g.id AND c.partition_id = p.id WHERE t.name = '{TOPIC}'
"""


@dataclass
class Seen:
    """The values over time, one of each look or query."""

    lag: list[float] = field(default_factory=list)  # messages, of the group that is further behind
    history: list[float] = field(default_factory=list)
    bystander: list[float] = field(default_factory=list)  # milliseconds


@dataclass(frozen=True)
class Counters:
    """What only grows; the difference of two of them is what a run has used."""

    lock_waits: int
    lock_seconds: float
    server_seconds: float
    tables: float  # bytes
    undo: float
    binlog: float | None

    @classmethod
    def now(cls, plain: Any) -> Counters:
        status = {
            key: int(value)
            for key, value in execute(plain, "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_%'")
        }
        server = server_pid(plain)
        ((folder, logs),) = execute(plain, "SELECT @@datadir, @@log_bin")
        binlog = [int(row[1]) for row in execute(plain, "SHOW BINARY LOGS")] if logs else None
        return cls(
            status["Innodb_row_lock_waits"],
            status["Innodb_row_lock_time"] / 1000,
            processor_seconds(server) if server else 0.0,
            _size(Path(folder) / name(), "ems_*.ibd"),
            # MySQL has files of their own for it, MariaDB before 11 its system tablespace.
            _size(Path(folder), "undo*") + _size(Path(folder), "ibdata*"),
            None if binlog is None else float(sum(binlog)),
        )


def _size(folder: Path, names: str) -> float:
    return float(sum(path.stat().st_size for path in folder.glob(names)))


def make_bystander(plain: Any) -> None:
    """Make a table that EMS knows nothing of."""
    execute(plain, "CREATE TABLE bench_bystander (id INT PRIMARY KEY, value VARCHAR(100))")
    rows = ", ".join(f"({number}, REPEAT('x', 100))" for number in range(BYSTANDERS))
    execute(plain, f"INSERT INTO bench_bystander VALUES {rows}")


def behind(plain: Any) -> float:
    """Return how many messages the group that is further behind has not finished."""
    return max((float(count) for _name, count in execute(plain, BEHIND)), default=0.0)


def look(plain: Any, seen: Seen, until: float, most: float, pause: float = LOOK_SECONDS) -> bool:
    """Look until the instant ``until``; return False as soon as the lag is above ``most``."""
    next_look, ids = time.monotonic(), cycle(range(BYSTANDERS))
    while time.time() < until:
        began = time.monotonic()
        execute(plain, f"SELECT value FROM bench_bystander WHERE id = {next(ids)}")
        seen.bystander.append((time.monotonic() - began) * 1000)
        if began >= next_look:
            next_look += pause
            seen.lag.append(behind(plain))
            seen.history.append(_history(plain))
            if seen.lag[-1] > most:
                return False
        time.sleep(QUERY_SECONDS)
    return True


def _history(plain: Any) -> float:
    ((*_names, status),) = execute(plain, "SHOW ENGINE INNODB STATUS")
    found = re.search(r"^History list length (\d+)", status, re.MULTILINE)
    assert found, status
    return float(found[1])


@contextmanager
def snapshot(held: bool) -> Iterator[None]:
    """Hold a snapshot of the server open in the block, as a long report does."""
    if not held:
        yield
        return
    reader = connect()
    execute(reader, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    execute(reader, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    execute(reader, "SELECT COUNT(*) FROM ems_msg")
    yield
    reader.close()
