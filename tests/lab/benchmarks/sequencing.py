"""Measures a pass of the sequencer over a full inbox beside its statements."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from tests.lab.benchmarks.figures import Options, Row, interleaved
from tests.lab.benchmarks.server import connect, execute, logged_here

TOPIC = "bench-sequence"


def figures(options: Options) -> Iterator[Row]:
    from streams.log.sequencer import sequence
    from streams.models import Topic

    inbox, rounds = (1_000, 3) if options.quick else (10_000, 9)
    topic = Topic.objects.create(name=TOPIC)
    partition = topic.partitions.get().pk
    plain = connect()

    def ours() -> float:
        refill(plain, partition, inbox)
        started = time.monotonic()
        assert sequence("default").sequenced == inbox
        return inbox / (time.monotonic() - started)

    refill(plain, partition, inbox)
    statements = logged_here(lambda: sequence("default"))

    def raw() -> float:
        refill(plain, partition, inbox)
        cursor = plain.cursor()
        started = time.monotonic()
        for statement in statements:
            cursor.execute(statement)
            if cursor.description:
                cursor.fetchall()
        speed = inbox / (time.monotonic() - started)
        assert execute(plain, "SELECT COUNT(*) FROM ems_msg WHERE `offset` IS NULL") == [(0,)]
        return speed

    name = f"sequence, {inbox:,} a pass, messages/s"
    yield interleaved(name, ours, raw, rounds=rounds, target=0.8)
    plain.close()


def refill(plain: Any, partition: int, rows: int) -> None:
    """The same inbox again, down to the ids: so the statements of one pass fit every pass."""
    from streams.database import remembered

    execute(plain, "TRUNCATE ems_msg")
    execute(plain, f"UPDATE ems_partition SET next_offset = 0 WHERE id = {partition}")
    remembered.forget()  # this process would take it for a restored backup, and jump
    values = (
        f"(%d, {partition}, '1970-01-01', '', REPEAT('x', 1024), 'text', 1024, 'bench',"
        " UTC_TIMESTAMP(6))"
    )
    for start in range(1, rows + 1, 1000):
        chunk = range(start, min(start + 1000, rows + 1))
        execute(
            plain,
            "INSERT INTO ems_msg (id, partition_id, due_at, tag, body, body_type, size, producer,"
            " created_at) VALUES " + ",".join(values % id_ for id_ in chunk),
        )
