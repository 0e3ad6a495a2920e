"""Fills an installation by SQL: millions of messages, groups, dead letters, samples, roll-ups."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tests.lab.benchmarks.rows import copy, fill
from tests.lab.benchmarks.server import connect, execute

CLIENTS, OPEN = 4, 8  # of each group
BATCH = 100  # messages of a delivery
SIZE = 100  # bytes of a body
NUMBERS = 60_000
# Expressions for a row that is of the number n.n.
NOW = "UTC_TIMESTAMP(6)"
MINUTE = "DATE_FORMAT(UTC_TIMESTAMP() - INTERVAL n.n MINUTE, '%Y-%m-%d %H:%i:00')"
NUMBER = "(UNIX_TIMESTAMP(UTC_TIMESTAMP()) DIV 60 - n.n)"
GRAIN = (
    f"CASE WHEN {NUMBER} % 360 = 0 THEN 360 WHEN {NUMBER} % 60 = 0 THEN 60"
    f" WHEN {NUMBER} % 5 = 0 THEN 5 ELSE 1 END"
)
CLASS = "IF(n.n % 2, 'ValueError', 'shop.Declined')"
GROUPS = "FROM ems_group g JOIN ems_partition p ON p.topic_id = g.topic_id"
OF = "JOIN bench_numbers n ON"


@dataclass(frozen=True)
class Crowd:
    """Says how much of everything there is."""

    messages: int = 5_000_000
    topics: int = 25
    partitions: int = 4  # of each topic
    groups: int = 2  # of each topic
    dead: int = 200_000
    retries: int = 50_000
    inbox: int = 2_000  # messages without an offset, in two partitions
    sampled: timedelta = timedelta(days=8)
    rolled_up: timedelta = timedelta(days=1)

    @property
    def small(self) -> Crowd:
        """Return one that is made in seconds, to see whether it runs at all."""
        hour = timedelta(hours=1)
        return Crowd(
            100_000, self.topics, self.partitions, self.groups, 4000, 1000, 100, hour, hour
        )

    def fill(self) -> None:
        plain = connect()
        _numbers(plain)
        self._places()
        self._messages(plain)
        self._consumed(plain)
        self._failed(plain)
        self._samples(plain)
        self._roll_ups(plain)
        tables = execute(plain, "SHOW TABLES LIKE 'ems\\_%'")
        execute(plain, "ANALYZE TABLE " + ", ".join(f"`{name}`" for (name,) in tables))
        plain.close()

    @property
    def each(self) -> int:
        """Return the messages of a partition."""
        return self.messages // (self.topics * self.partitions)

    def _places(self) -> None:
        from streams.models import Consumer, ConsumerGroup, Cursor, Partition, Step, Topic, UtcNow

        for number in range(self.topics):
            topic = Topic.objects.create(name=f"topic-{number:02}")
            Partition.objects.bulk_create(
                Partition(topic=topic, number=n) for n in range(1, self.partitions)
            )
            for which in range(self.groups):
                group = ConsumerGroup.objects.create(topic=topic, name=f"group-{number:02}-{which}")
                Consumer.objects.bulk_create(
                    Consumer(
                        client_id=f"10.0.0.{n}@{number}@bench",
                        group=group,
                        lease_until=UtcNow(timedelta(hours=5)),
                    )
                    for n in range(CLIENTS)
                )
        # Some thousands behind, each group by another number.
        Cursor.objects.bulk_create(
            Cursor(group=group, partition=one, next_offset=self.each - 100 * (group.pk % 40))
            for group in ConsumerGroup.objects.all()
            for one in Partition.objects.filter(topic=group.topic_id)
        )
        for name in ("sequence", "sweep", "purge", "sample", "alarms", "audit"):
            Step.objects.create(name=name, last_run_at=UtcNow(timedelta(hours=5)))

    def _messages(self, plain: Any) -> None:
        ((first,),) = execute(plain, "SELECT MIN(id) FROM ems_partition")
        fill(plain, first, 0, self.each, size=SIZE)
        others = execute(plain, f"SELECT id FROM ems_partition WHERE id <> {first}")
        for (other,) in others:
            copy(plain, "ems_msg", f"WHERE r.partition_id = {first}", partition_id=f"{other}")
        end = f"next_offset = {self.each}, last_sequenced_at = UTC_TIMESTAMP(6)"
        execute(plain, f"UPDATE ems_partition SET {end}")
        for partition, due in ((first, "'1970-01-01'"), (others[0][0], "UTC_TIMESTAMP(6)")):
            waits = f"WHERE r.partition_id = {first} AND r.`offset` < {self.inbox // 2}"
            changed = {"partition_id": f"{partition}", "offset": "NULL", "sequenced_at": "NULL"}
            copy(plain, "ems_msg", waits, **changed, due_at=due)

    def _consumed(self, plain: Any) -> None:
        delivery = {
            "group_id": "g.id",
            "partition_id": "p.id",
            "first_offset": f"n.n * {BATCH}",
            "last_offset": f"n.n * {BATCH} + {BATCH - 1}",
            "progress": f"(n.n + 1) * {BATCH}",
            "kind": "'new'",
            "attempt": "1",
            "client_id": "CONCAT('10.0.0.', n.n % 4, '@1@bench')",
            "thread": "'pool-0'",
            "token": "''",
            "state": "'DONE'",
            "claimed_at": NOW,
            "started_at": NOW,
            "deadline": NOW,
            "finished_at": NOW,
            **dict.fromkeys(("failed", "dead", "missing", "passed"), "0"),
            "error": "''",
        }
        finished = f"JOIN ems_cursor c ON c.group_id = g.id AND c.partition_id = p.id {OF}"
        finished += f" n.n < c.next_offset DIV {BATCH} ORDER BY n.n, c.group_id"
        _insert(plain, "ems_topic_group_log", f"{GROUPS} {finished}", **delivery)
        is_open = {
            "progress": f"n.n * {BATCH}",
            "token": "REPEAT('t', 32)",
            "state": "'START'",
            "deadline": f"{NOW} + INTERVAL 5 HOUR",
            "finished_at": "NULL",
        }
        held = f"{GROUPS} {OF} n.n < {OPEN} AND p.number = n.n % {self.partitions}"
        _insert(plain, "ems_topic_group_log", held, **{**delivery, **is_open})

    def _failed(self, plain: Any) -> None:
        groups = self.topics * self.groups
        of_group = {"group_id": "g.id", "partition_id": "p.id", "offset": "n.n"}
        _insert(
            plain,
            "ems_dead_msg",
            f"{GROUPS} {OF} p.number = 0 AND n.n < {self.dead // groups}",
            **of_group,
            topic_id="g.topic_id",
            message_id="n.n",
            body=f"REPEAT('x', {SIZE})",
            body_type="'text'",
            size=f"{SIZE}",
            tag="''",
            producer="'bench'",
            sent_at=NOW,
            attempts="17",
            error_class=CLASS,
            error="'no'",
            traceback="REPEAT('t', 1000)",
            died_at=f"{NOW} - INTERVAL n.n MINUTE",
        )
        _insert(
            plain,
            "ems_retry_msg",
            f"{GROUPS} {OF} p.number = 1 AND n.n < {self.retries // groups}",
            **of_group,
            attempt="2",
            due_at=f"{NOW} + INTERVAL n.n SECOND",
            again="0",
            alone="0",
            last_error="'ValueError: no'",
        )

    def _samples(self, plain: Any) -> None:
        sampled = f"{OF} n.n < {self.sampled // timedelta(minutes=1)}"
        when = {"minute": MINUTE, "taken_at": MINUTE, "grain": GRAIN}
        _insert(
            plain,
            "ems_monitoring_sample",
            f"FROM ems_partition p {sampled} ORDER BY n.n DESC",
            **when,
            partition_id="p.id",
            first_offset="0",
            next_offset="GREATEST(0, p.next_offset - n.n * 4)",
            inbox="0",
        )
        _insert(
            plain,
            "ems_monitoring_sample_group",
            f"FROM ems_group g {sampled} ORDER BY n.n DESC",
            **when,
            group_id="g.id",
            behind="4000",
            open="100",
            waiting="1000",
            dead="4000",
            done="GREATEST(0, 200000 - n.n * 16)",
            consumers="4",
            blocked="0",
            age_seconds="60",
        )

    def _roll_ups(self, plain: Any) -> None:
        rolled_up = f"{OF} n.n < {self.rolled_up // timedelta(minutes=1)}"
        of_group = {"group_id": "g.id", "minute": MINUTE}
        groups = f"FROM ems_group g {rolled_up}"
        _insert(
            plain,
            "ems_monitoring_traffic",
            f"FROM ems_partition p {rolled_up}",
            partition_id="p.id",
            minute=MINUTE,
            first_offset="n.n",
            end_offset="n.n + 1",
            messages="4",
            bytes="400",
            keys="1",
            delayed="0",
        )
        for leg in ("sequenced", "claimed", "done", "total"):
            times = {"mean": "1", "p50": "1", "p95": "2", "p99": "3", "worst": "4"}
            table = "ems_monitoring_latency"
            _insert(plain, table, groups, **of_group, leg=f"'{leg}'", messages="16", **times)
        failed = {"error_class": CLASS, "failed": "3", "dead": "1"}
        _insert(plain, "ems_monitoring_error", groups, **of_group, **failed)
        run = {"job": "'traffic'", "state": "'done'", "missed": "0", "error": "''"}
        times = dict.fromkeys(("since", "until", "started_at", "finished_at"), NOW)
        _insert(plain, "ems_monitoring_run", "", **run, **times)


def _insert(plain: Any, table: str, source: str, **columns: str) -> None:
    """Insert a row for each one of ``source``; ``columns`` has an SQL expression for each."""
    names = ", ".join(f"`{name}`" for name in columns)
    values = ", ".join(columns.values())
    execute(plain, f"INSERT INTO `{table}` ({names}) SELECT {values} {source}")


def _numbers(plain: Any) -> None:
    """Make the table bench_numbers, which counts from 0 to NUMBERS."""
    execute(plain, "CREATE TABLE bench_numbers (n INT PRIMARY KEY)")
    execute(plain, "INSERT INTO bench_numbers VALUES (0)")
    made = 1
    while made < NUMBERS:
        source = f"FROM bench_numbers n WHERE n.n < {NUMBERS - made}"
        _insert(plain, "bench_numbers", source, n=f"n.n + {made}")
        made = min(2 * made, NUMBERS)
