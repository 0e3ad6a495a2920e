"""Measures what one message of 1 KB costs in processor time, of the client and of the server.

What a group costs is measured by ``consume``; ``python -m tests.lab.benchmarks.plan`` plans with
both.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from tests.lab.benchmarks.contender import processor_seconds as of_process
from tests.lab.benchmarks.contender import server_pid
from tests.lab.benchmarks.figures import Options, Row
from tests.lab.benchmarks.sending import A_CALL, many_sender, sender
from tests.lab.benchmarks.sequencing import refill
from tests.lab.benchmarks.server import connect, execute

TOPIC = "bench-units"
SETTLED_SECONDS = 60  # the longest wait until the server has purged what was deleted


def figures(options: Options) -> Iterator[Row]:
    from streams.log.sequencer import sequence
    from streams.models import Partition, Topic
    from streams.retain.purge import Purge

    rows = 1_000 if options.quick else 20_000
    partition: Partition = Topic.objects.create(name=TOPIC).partitions.get()
    plain = connect()
    execute(plain, "CREATE TABLE bench_settled (id INT PRIMARY KEY)")
    send, send_many = sender(), many_sender()
    yield measured("send, one by one", rows // 4, plain, lambda: send(rows // 4))
    yield measured(f"send_many, {A_CALL} a call", rows, plain, lambda: send_many(rows // A_CALL))
    refill(plain, partition.pk, rows)

    def sequenced() -> None:
        done = 0
        while done < rows:
            done += sequence("default").sequenced

    yield measured("sequence", rows, plain, sequenced)
    execute(plain, f"UPDATE ems_partition SET first_offset = next_offset WHERE id = {partition.pk}")
    partition.refresh_from_db()
    yield measured("purge", rows, plain, lambda: _purge(Purge("default"), partition, rows))
    plain.close()


def _purge(purge: Any, partition: Any, rows: int) -> None:
    deleted = purge.delete_below(partition)
    assert deleted == rows, f"{deleted} of {rows} were deleted"


def measured(name: str, messages: int, plain: Any, work: Callable[[], None]) -> Row:
    """Run the work; what the server does for it in the background is waited for, and counted."""
    server = server_pid(plain)
    assert server, "the server runs on another machine"
    _settle(plain)
    client, before = time.process_time(), of_process(server)
    work()
    client = time.process_time() - client
    _settle(plain)
    costs = {"client CPU, µs": client, "server CPU, µs": of_process(server) - before}
    return Row(name, {key: round(value / messages * 1e6, 1) for key, value in costs.items()})


def _settle(plain: Any) -> None:
    """Wait until the server has purged what was changed and deleted.

    It purges in the order of the transactions, when one of them has deleted something. The length
    of its history says nothing: an idle server may keep there for ever what it has purged.
    """
    transactions, _purged = _progress(plain)
    execute(plain, "INSERT INTO bench_settled VALUES (1)")
    execute(plain, "DELETE FROM bench_settled")
    until = time.monotonic() + SETTLED_SECONDS
    while _progress(plain)[1] <= transactions:
        assert time.monotonic() < until, "the server does not purge what was deleted"
        time.sleep(0.05)


def _progress(plain: Any) -> tuple[int, int]:
    """Return the number that the next transaction gets, and the one below which all is purged."""
    ((*_names, status),) = execute(plain, "SHOW ENGINE INNODB STATUS")
    found = re.search(
        r"^Trx id counter (\d+)\n^Purge done for trx's n:o < (\d+)", status, re.MULTILINE
    )
    assert found, status
    return int(found[1]), int(found[2])
