"""Real ems_consume processes with a handler that does nothing, beside their statements.

Both move over the same log again and again, each as a group of its own. While the statements are
replayed, the consumers are frozen. The speed is read from the delivery rows that both write,
between the first moment when all three are at work and the last one.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.benchmarks.figures import Figure, interleaved
from tests.benchmarks.server import connect, execute, logged
from tests.benchmarks.teams import Team, Work
from tests.processes import Child, Spawn

TOPIC = "bench-consume"
BATCH, PROCESSES = 100, 3
# The log begins here, so that its offsets are numbers that occur in no other place.
FIRST = 700_000_000
POLL_SECONDS = 0.1
PATIENCE_SECONDS = 60

CONSUMER = f"""
from django.core.management import call_command
from streams import consumer

@consumer("{TOPIC}", group="ours", batch={BATCH})
def do_nothing(messages):
    pass

call_command("ems_consume", "--start", "earliest", "--group", "ours", "--threads", "1")
"""


def figures(*, quick: bool) -> Iterator[Figure]:
    messages, rounds = (12_000, 3) if quick else (30_000, 9)
    log = Log(messages)
    spawn = Spawn(environment())
    try:
        consumers = [spawn(CONSUMER) for _ in range(PROCESSES)]
        for consumer in consumers:
            consumer.expect("database connections")

        def ours() -> float:
            # Frozen for longer than they poll: they all look at once when they are thawed.
            for consumer in consumers:
                consumer.freeze()
            time.sleep(2 * POLL_SECONDS)
            log.rewind("ours")
            for consumer in consumers:
                consumer.thaw()
            log.wait("ours")
            for consumer in consumers:
                consumer.freeze()
            return log.speed("ours")

        statements = logged(ours)
        team = Team(PROCESSES, replayer, unit_of_work(statements), log.groups["raw"], log.end)
        try:

            def raw() -> float:
                log.rewind("raw")
                team.round(1)
                return log.speed("raw")

            name = f"consume, batch {BATCH}, {PROCESSES} processes, messages/s"
            yield interleaved(name, ours, raw, rounds=rounds, target=0.4)
        finally:
            team.close()
    finally:
        _stop(consumers)
        spawn.close()


class Log:
    """Makes a topic whose messages have their offsets, and two groups on it."""

    def __init__(self, messages: int) -> None:
        from streams.models import ConsumerGroup, Cursor, Topic

        topic = Topic.objects.create(name=TOPIC)
        partition = topic.partitions.get()
        self.end = FIRST + messages
        self.messages = messages
        self.plain = connect()
        fill(self.plain, partition.pk, FIRST, messages, size=1024)
        self.groups = {
            name: ConsumerGroup.objects.create(topic=topic, name=name).pk
            for name in ("ours", "raw")
        }
        for group in self.groups.values():
            Cursor.objects.create(group_id=group, partition=partition, next_offset=self.end)

    def rewind(self, group: str) -> None:
        """Put the group back to the start, as if it had never consumed."""
        where = f"WHERE group_id = {self.groups[group]}"
        execute(self.plain, f"DELETE FROM ems_topic_group_log {where}")
        execute(self.plain, f"UPDATE ems_cursor SET next_offset = {FIRST} {where}")

    def wait(self, group: str) -> None:
        """Wait until the group has consumed all."""
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        done = (
            "SELECT COALESCE(SUM(last_offset - first_offset + 1), 0) FROM ems_topic_group_log"
            f" WHERE group_id = {self.groups[group]} AND state = 'DONE'"
        )
        while execute(self.plain, done)[0][0] < self.messages:
            assert time.monotonic() < give_up_at, f"{group} does not come to the end"
            time.sleep(0.05)

    def speed(self, group: str) -> float:
        """Messages a second while all clients were at work."""
        rows = execute(
            self.plain,
            "SELECT client_id, last_offset - first_offset + 1, claimed_at, finished_at"
            f" FROM ems_topic_group_log WHERE group_id = {self.groups[group]}",
        )
        assert sum(row[1] for row in rows) == self.messages, f"{group} has left some out"
        clients = {row[0] for row in rows}
        assert len(clients) == PROCESSES, f"{len(clients)} clients of {group} had work"
        start = max(min(row[2] for row in rows if row[0] == client) for client in clients)
        end = min(max(row[3] for row in rows if row[0] == client) for client in clients)
        inside = sum(int(row[1]) for row in rows if start <= row[2] and row[3] <= end)
        return float(inside / (end - start).total_seconds())


def fill(plain: Any, partition: int, first: int, rows: int, *, size: int) -> None:
    """Append messages that have their offsets already."""
    for start in range(first, first + rows, 1000):
        values = ",".join(
            f"({partition}, {offset}, '1970-01-01', '', REPEAT('x', {size}), 'text', {size},"
            " 'bench', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))"
            for offset in range(start, min(start + 1000, first + rows))
        )
        execute(
            plain,
            "INSERT INTO ems_msg (partition_id, `offset`, due_at, tag, body, body_type, size,"
            f" producer, created_at, sequenced_at) VALUES {values}",
        )
    execute(plain, f"UPDATE ems_partition SET next_offset = {first + rows} WHERE id = {partition}")


def unit_of_work(logged_statements: dict[int, list[str]]) -> list[str]:
    """One delivery as a worker's connection has it in the log: from one settlement to the next.

    What differs from delivery to delivery is marked: {start}, {end}, {last}, {delivery}, {token}.
    """
    settles = re.compile(r"^UPDATE `ems_topic_group_log` .*'DONE'")
    busiest = max(logged_statements.values(), key=lambda s: sum(map(bool, map(settles.match, s))))
    ends = [number for number, text in enumerate(busiest) if settles.match(text)]
    # One from the middle, and without a cursor that another process held.
    units = [busiest[a + 1 : b + 1] for a, b in pairwise(ends)]
    unit = min(units[1:-1], key=len)
    text = "\n;\n".join(unit)
    start, end = map(int, re.findall(r"`offset` >= (\d+) AND `offset` < (\d+)", text)[-1])
    assert FIRST <= start < end, text
    (token,) = set(re.findall(r"'([0-9a-f]{32})'", text))
    (delivery,) = set(re.findall(r"`ems_topic_group_log` SET.* WHERE .*?`id` = (\d+)", text))
    text = text.replace("{", "{{").replace("}", "}}")
    text = re.sub(rf"(`id` = ){delivery}\b", r"\g<1>{delivery}", text).replace(token, "{token}")
    marks = {start: "{start}", end: "{end}", end - 1: "{last}"}
    for number, mark in marks.items():
        text = re.sub(rf"\b{number}\b", mark, text)
    return text.split("\n;\n")


def replayer(unit: list[str], group: int, end: int) -> Work:
    """Go through the log with the statements of one delivery, by nothing but mysqlclient."""
    from uuid import uuid4

    connection = connect()
    cursor = connection.cursor()
    me = f"raw@{os.getpid()}"
    # The group and the client are this one's; its cursor is found as the statements find it.
    ((sampled,),) = execute(
        connection, f"SELECT id FROM ems_group WHERE name = 'ours' AND id <> {group}"
    )
    ((theirs,), (mine,)) = (
        execute(connection, f"SELECT id FROM ems_cursor WHERE group_id = {of}")[0]
        for of in (sampled, group)
    )
    unit = [_as_group(text, sampled, group, theirs, mine, me) for text in unit]

    def deliver() -> bool:
        values: dict[str, object] = {"token": uuid4().hex}
        for text in unit:
            cursor.execute(text.format(**values))
            rows = cursor.fetchall() if cursor.description else ()
            if "`ems_cursor`" in text and "FOR UPDATE" in text:
                if not rows:  # another process holds it: queue up for it
                    cursor.execute(text.replace("SKIP LOCKED", ""))
                    rows = cursor.fetchall()
                start = rows[0][0]
                if start >= end:
                    cursor.execute("ROLLBACK")
                    cursor.execute("SET autocommit = 1")
                    return False
                stop = min(start + BATCH, end)
                values.update(start=start, end=stop, last=stop - 1)
            elif text.startswith("INSERT INTO `ems_topic_group_log`"):
                values["delivery"] = cursor.lastrowid
        return True

    def work(units: int) -> None:
        while deliver():
            pass

    return work


def _as_group(text: str, sampled: int, group: int, theirs: int, mine: int, me: str) -> str:
    text = re.sub(rf"(`group_id` = ){sampled}\b", rf"\g<1>{group}", text)
    if "`ems_cursor`" in text:
        text = re.sub(rf"(`id` = ){theirs}\b", rf"\g<1>{mine}", text)
    if text.startswith("INSERT INTO `ems_topic_group_log`"):
        text = re.sub(rf"(VALUES \(){sampled}\b", rf"\g<1>{group}", text)
        text = re.sub(r"'[^']*@\d+@[^']*'", f"'{me}'", text, count=1)
    return text


def environment() -> dict[str, str]:
    return {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path[1:]]),
        "EMS_TEST_EMS": json.dumps({"POLL_SECONDS": POLL_SECONDS}),
    }


def _stop(consumers: list[Child]) -> None:
    for consumer in consumers:
        consumer.thaw()
        consumer.terminate()
    for consumer in consumers:
        consumer.wait()
