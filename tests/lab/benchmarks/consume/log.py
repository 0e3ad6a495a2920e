"""The log that is consumed again and again, each time as if the group had never read it."""

from __future__ import annotations

import json
import time
from datetime import timedelta

from tests.lab.benchmarks.contender import Contender
from tests.lab.benchmarks.rows import fill
from tests.lab.benchmarks.server import execute

# The log begins here, so that its offsets are numbers that occur in no other place.
FIRST = 700_000_000
PATIENCE_SECONDS = 180

SET_UP = """
import json, sys
from streams.models import ConsumerGroup, Cursor, Topic

name, end, *groups = sys.argv[1:]
topic = Topic.objects.create(name=name)
partition = topic.partitions.get()
ids = {}
for group in groups:
    ids[group] = ConsumerGroup.objects.create(topic=topic, name=group).pk
    Cursor.objects.create(group_id=ids[group], partition=partition, next_offset=int(end))
print(json.dumps([partition.pk, ids]))
"""


class Log:
    """Makes a topic whose messages have their offsets, and groups that are at its end."""

    def __init__(
        self,
        contender: Contender,
        topic: str,
        messages: int,
        groups: list[str],
        size: int = 1024,
    ) -> None:
        self.size, self.end = messages, FIRST + messages
        self.plain = contender.connect()
        spawn = contender.spawn()
        said = spawn(SET_UP, topic, self.end, *groups).succeed()
        spawn.close()
        partition, self.groups = json.loads(said.splitlines()[-1])
        fill(self.plain, partition, FIRST, messages, size=size)

    def rewind(self, group: str, messages: int) -> None:
        """Put the group so many messages before the end, as if it had never consumed."""
        where = f"WHERE group_id = {self.groups[group]}"
        execute(self.plain, f"DELETE FROM ems_topic_group_log {where}")
        start = self.end - messages
        execute(self.plain, f"UPDATE ems_cursor SET next_offset = {start} {where}")

    def wait(self, group: str, messages: int) -> None:
        """Wait until the group has consumed so many."""
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        done = (
            "SELECT COALESCE(SUM(last_offset - first_offset + 1), 0) FROM ems_topic_group_log"
            f" WHERE group_id = {self.groups[group]} AND state = 'DONE'"
        )
        while execute(self.plain, done)[0][0] < messages:
            assert time.monotonic() < give_up_at, f"{group} does not come to the end"
            time.sleep(0.05)

    def speed(self, group: str) -> float:
        """Return messages a second while all clients were at work."""
        rows = execute(
            self.plain,
            "SELECT client_id, last_offset - first_offset + 1, claimed_at, finished_at"
            f" FROM ems_topic_group_log WHERE group_id = {self.groups[group]}",
        )
        clients = {row[0] for row in rows}
        start = max(min(row[2] for row in rows if row[0] == client) for client in clients)
        end = min(max(row[3] for row in rows if row[0] == client) for client in clients)
        if start >= end:  # they were at work one after the other
            start, end = min(row[2] for row in rows), max(row[3] for row in rows)
        inside = 0.0
        for _client, messages, claimed, finished in rows:
            took = max(finished - claimed, timedelta(microseconds=1))
            # Of a claim that was at work before or after, the share that falls between.
            share = max(timedelta(0), min(finished, end) - max(claimed, start)) / took
            inside += int(messages) * share
        return float(inside / (end - start).total_seconds())
