"""Measures the Spark source beside Spark's own JDBC source, and beside an earlier commit.

Each way of reading is a Spark session in a process of its own; they read in turn. What counts is
the processor time of a row, of Spark with its Python workers and of the server: wall time tells
little on a busy machine. Read are whole messages and five narrow columns of one partition, and the
columns of the traffic of 400 partitions that were written in turn.

EMS_BENCH_BEFORE  a checkout of an earlier commit, for example a git worktree; else it is left out
EMS_BENCH_JDBC    the jar of a driver; else Debian's libmariadb-java, if it is there
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.lab.benchmarks.contender import processor_seconds, server_pid
from tests.lab.benchmarks.figures import Options, Row, alternately
from tests.lab.benchmarks.server import connect, execute
from tests.lab.benchmarks.spark import option_file
from tests.processes import ROOT

TASKS = 2
ONE, MANY, PARTITIONS = "bench-one", "bench-many", 400
NARROW = ("offset", "key", "size", "delayed", "sequenced_at")
JAR = "/usr/share/java/mariadb-java-client.jar"
COLUMNS = {"whole": (), "narrow": NARROW, "400 partitions": ("partition_id", *NARROW)}


def figures(options: Options) -> Iterator[Row]:
    rows, rounds = (40_000, 2) if options.quick else (options.messages or 400_000, 3)
    with tempfile.TemporaryDirectory(prefix="ems-reading-") as folder, contextlib.ExitStack() as on:
        fill(rows)
        file = option_file(Path(folder))
        ways = {name: on.enter_context(Way(name, file)) for name in names()}
        for what in COLUMNS:
            for way in ways.values():
                way.read(what, rows)  # warms up
            reads = [partial(way.read, what, rows) for way in ways.values()]
            measured = alternately(reads, rounds)
            for name, found in zip(ways, measured, strict=True):
                yield _row(f"{name}: {what}", rows, found)


def names() -> Iterator[str]:
    if os.environ.get("EMS_BENCH_BEFORE"):
        yield "before"
    yield "mysqlclient"
    if find_spec("connectorx"):
        yield "ConnectorX"
    if Path(os.environ.get("EMS_BENCH_JDBC", JAR)).exists():
        yield "Spark's JDBC"


def _row(name: str, rows: int, found: list[tuple[float, float, float]]) -> Row:
    seconds, spark, server = (statistics.median(values) for values in zip(*found, strict=True))
    return Row(
        name,
        {
            "messages/s": round(rows / seconds),
            "Spark, µs": round(spark / rows * 1e6, 2),
            "server, µs": round(server / rows * 1e6, 2),
            "both, µs": round((spark + server) / rows * 1e6, 2),
        },
    )


class Way:
    """A process with a Spark session, which reads when it is told to."""

    def __init__(self, name: str, file: Path) -> None:
        before = os.environ.get("EMS_BENCH_BEFORE", "") if name == "before" else ""
        if name == "mysqlclient":
            file = _without_connectorx(file)
        self.environment = {
            **os.environ,
            "PYTHONPATH": before or str(ROOT),
            "PYTHONSAFEPATH": "1",
            "EMS_SPARK_MASTER": f"local[{TASKS}]",
        }
        self.command = [sys.executable, __file__, name, str(file)]
        plain = connect()
        self.server = server_pid(plain)
        plain.close()

    def __enter__(self) -> Way:
        self.process = subprocess.Popen(
            self.command,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(OSError):
            assert self.process.stdin
            self.process.stdin.close()
        self.process.wait(60)

    def read(self, what: str, rows: int) -> tuple[float, float, float]:
        """Return the seconds, and the processor time of Spark and of the server."""
        assert self.process.stdin
        assert self.process.stdout
        before = self._spent()
        started = time.monotonic()
        self.process.stdin.write(json.dumps([what, rows]) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer.strip() == "read", f"{self.command}: {answer}"
        seconds = time.monotonic() - started
        after = self._spent()
        return seconds, after[0] - before[0], after[1] - before[1]

    def _spent(self) -> tuple[float, float]:
        of_server = processor_seconds(self.server) if self.server else 0.0
        return sum(map(processor_seconds, family(self.process.pid))), of_server


def family(pid: int) -> Iterator[int]:
    yield pid
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in (thread / "children").read_text().split():
            yield from family(int(child))


def _without_connectorx(file: Path) -> Path:
    """Return the option file with quotes, which only the MySQL client itself reads."""
    quoted = file.with_name("quoted.cnf")
    quoted.touch(mode=0o600)
    quoted.write_text(re.sub(r"^password=(.*)$", r'password="\1"', file.read_text(), flags=re.M))
    return quoted


def fill(rows: int) -> None:
    """One partition with so many messages of 1 KB, and as many short ones in 400 partitions."""
    from streams.models import Topic

    plain = connect()
    execute(plain, "TRUNCATE ems_msg")
    one = Topic.objects.create(name=ONE).partitions.get().pk
    topics = [Topic.objects.create(name=f"{MANY}-{number}") for number in range(PARTITIONS)]
    many = [topic.partitions.get().pk for topic in topics]
    bodies = ("REPEAT(SHA2({n}, 256), 16)", 1024), ("'0123456789abcdef'", 16)
    for partitions, (body, size) in zip(([one], many), bodies, strict=True):
        for start in range(0, rows, 5000):
            values = ",".join(
                f"({partitions[n % len(partitions)]}, {n // len(partitions)}, '1970-01-01',"
                f" 'key-{n % 1000}', '', {body.format(n=n)}, 'text', {size}, 'bench',"
                " UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))"
                for n in range(start, start + 5000)
            )
            execute(
                plain,
                "INSERT INTO ems_msg (partition_id, `offset`, due_at, `key`, tag, body, body_type,"
                f" size, producer, created_at, sequenced_at) VALUES {values}",
            )
        ends = rows // len(partitions)
        ids = ", ".join(map(str, partitions))
        execute(plain, f"UPDATE ems_partition SET next_offset = {ends} WHERE id IN ({ids})")
    execute(plain, "ANALYZE TABLE ems_msg")
    plain.close()


def main() -> None:
    """Be one way: read what each line of the standard input says."""
    name, file = sys.argv[1:]
    jar = os.environ.get("EMS_BENCH_JDBC", JAR)
    if name == "Spark's JDBC":
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {jar} pyspark-shell"
    from sparkjobs.session import session

    spark = session(f"benchmark {name}")
    for line in sys.stdin:
        what, rows = json.loads(line)
        frame = by_jdbc(spark, file, what, rows) if "JDBC" in name else by_ems(spark, file, what)
        frame.write.format("noop").mode("overwrite").save()
        print("read", flush=True)
    spark.stop()


def by_ems(spark: Any, file: str, what: str) -> Any:
    from sparkjobs.config import Config
    from sparkjobs.database import connected, fetch
    from sparkjobs.source.schemas import MESSAGES, only

    columns = COLUMNS[what]
    reader = spark.read.format("ems").options(config=file)
    reader = reader.schema(only(MESSAGES, *columns) if columns else MESSAGES)
    if what != "400 partitions":
        return reader.option("topic", ONE).load()
    with connected(Config.load(file)) as connection:
        ends = fetch(
            connection,
            "SELECT p.`id`, p.`next_offset` FROM `ems_partition` p JOIN `ems_topic` t"
            f" ON t.`id` = p.`topic_id` WHERE t.`name` LIKE '{MANY}%%'",
        )
    bounds = {id_: [0, end] for id_, end in ends}
    return reader.option("bounds", json.dumps(bounds)).load()


def by_jdbc(spark: Any, file: str, what: str, rows: int) -> Any:
    """Read as its manual says: by the primary key, in as many parts as the source has tasks."""
    import configparser

    given = configparser.ConfigParser(interpolation=None)
    given.read(file)
    client = given["client"]
    columns = {
        "offset": "`offset`",
        "delayed": "due_at > '1970-01-01' AS `delayed`",
    }
    chosen = ", ".join(columns.get(c, f"`{c}`") for c in COLUMNS[what]) or "*"
    name = f"{MANY}%" if what == "400 partitions" else ONE
    query = (
        f"(SELECT id AS id_, {chosen if chosen != '*' else 'm.*'} FROM ems_msg m WHERE partition_id"
        f" IN (SELECT p.id FROM ems_partition p JOIN ems_topic t ON t.id = p.topic_id"
        f" WHERE t.name LIKE '{name}')) x"
    )
    url = f"jdbc:mysql://{client['host']}:{client['port']}/{client['database']}"
    first = rows if what == "400 partitions" else 0
    return (
        spark.read.format("jdbc")
        .option("url", f"{url}?permitMysqlScheme&useServerPrepStmts=false")
        .option("driver", "org.mariadb.jdbc.Driver")
        .options(user=client["user"], password=client["password"] or "", dbtable=query)
        .options(partitionColumn="id_", lowerBound=first, upperBound=first + rows)
        .options(numPartitions=max(1, rows // 50_000), fetchsize=10_000)
        .load()
    )


if __name__ == "__main__":
    main()
