"""Writes a million messages, and what groups have done with them, inside the server."""

from __future__ import annotations

from typing import Any

from django.db import connection

from streams.models import Consumer, ConsumerGroup, Cursor, Message, Partition, Topic, UtcNow
from streams.models.consumer import LEASE
from tests.admin.world import run_steps

MESSAGES = 1_000_000
BODY_BYTES = 1024
QUIET = 100_000  # the oldest messages, of a topic where nothing is sent any more
DELIVERIES = 1_000_000
DEAD = 200_000
RETRIES = 200_000
NUMBERS = 1000

# Statements of NUMBERS rows and more: {n} counts from 0.
FILL_MESSAGES = """
INSERT INTO ems_msg (partition_id, `offset`, due_at, `key`, tag, headers, body, body_type, size,
                     producer, created_at, sequenced_at)
SELECT %s, %s + n, '1970-01-01', CONCAT('key-', %s + n), IF(n %% 3, 'web', 'shop'), NULL,
       REPEAT('x', %s), 'text', %s, '10.0.0.1@1@main',
       UTC_TIMESTAMP(6) - INTERVAL 1 DAY, UTC_TIMESTAMP(6) - INTERVAL 1 DAY
FROM numbers WHERE n < %s ORDER BY n
"""
FILL_DELIVERIES = """
INSERT INTO ems_topic_group_log (group_id, partition_id, first_offset, last_offset, progress, kind,
    attempt, client_id, thread, token, state, claimed_at, started_at, deadline, finished_at, failed,
    dead, missing, error)
SELECT %s, %s, %s + n, %s + n, %s + n + 1, 'new', 1, '10.0.0.1@7@abc', 'mail-0', LPAD(n, 32, '0'),
       IF(n %% 100 = 7, 'RETRY', 'DONE'), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6),
       UTC_TIMESTAMP(6), n %% 100 = 7, 0, 0, IF(n %% 100 = 7, 'ValueError: no', '')
FROM numbers WHERE n < %s ORDER BY n
"""
FILL_DEAD = """
INSERT INTO ems_dead_msg (topic_id, group_id, partition_id, `offset`, message_id, body, body_type,
    size, `key`, tag, headers, producer, sent_at, attempts, error_class, error, traceback, died_at,
    redriven_at)
SELECT %s, %s, %s, %s + n, %s + n, REPEAT('x', 1024), 'text', 1024, CONCAT('key-', %s + n), '',
       NULL,
       '10.0.0.1@1@main', UTC_TIMESTAMP(6), 17, IF(n %% 2, 'ValueError', 'shop.Declined'), 'no',
       REPEAT('t', 2000), UTC_TIMESTAMP(6), IF(n %% 4, NULL, UTC_TIMESTAMP(6))
FROM numbers WHERE n < %s ORDER BY n
"""
FILL_RETRIES = """
INSERT INTO ems_retry_msg (group_id, partition_id, `offset`, attempt, due_at, delivery_id, again,
    alone, dead_letter_id, last_error)
SELECT %s, %s, %s + n, 2, UTC_TIMESTAMP(6) + INTERVAL n SECOND, IF(n %% 1000, NULL, n + 1), 0, 0,
       NULL, 'ValueError: no'
FROM numbers WHERE n < %s ORDER BY n
"""


def fill() -> None:
    """Write two topics, a busy and a quiet one, and three groups on the busy one."""
    if Message.objects.exists():  # a database that was kept for another look
        run_steps()
        return
    execute("SET SESSION auto_increment_increment = 1")  # as most servers
    quiet, busy = (Topic.objects.create(name=name) for name in ("quiet", "orders"))
    old, log = quiet.partitions.get(), busy.partitions.get()
    execute("CREATE TEMPORARY TABLE numbers (n INT PRIMARY KEY)")
    execute("INSERT INTO numbers VALUES " + ",".join(f"({n})" for n in range(NUMBERS)))
    while (count := scalar("SELECT COUNT(*) FROM numbers")) < 100_000:
        execute("CREATE TEMPORARY TABLE more SELECT n + %s AS n FROM numbers", count)
        execute("INSERT INTO numbers SELECT n FROM more")
        execute("DROP TEMPORARY TABLE more")
    in_chunks(
        QUIET, lambda at, n: execute(FILL_MESSAGES, old.pk, at, at, BODY_BYTES, BODY_BYTES, n)
    )
    busy_count = MESSAGES - QUIET
    in_chunks(
        busy_count, lambda at, n: execute(FILL_MESSAGES, log.pk, at, at, BODY_BYTES, BODY_BYTES, n)
    )
    Partition.objects.filter(pk=old.pk).update(next_offset=QUIET)
    Partition.objects.filter(pk=log.pk).update(next_offset=busy_count)
    groups = [ConsumerGroup.objects.create(topic=busy, name=name) for name in ("mail", "bill")]
    rare = ConsumerGroup.objects.create(topic=quiet, name="archive")
    for group, partition in ((groups[0], log), (groups[1], log), (rare, old)):
        Cursor.objects.create(group=group, partition=partition, next_offset=QUIET)
        Consumer.objects.create(client_id="10.0.0.1@7@abc", group=group, lease_until=UtcNow(LEASE))
    deliver(rare.pk, old.pk, 1000)
    for group in groups:
        deliver(group.pk, log.pk, DELIVERIES // 2)
    for group, n in ((rare, 1000), (groups[0], DEAD)):
        place = (group.topic_id, group.pk, log.pk)
        in_chunks(n, lambda at, n, place=place: execute(FILL_DEAD, *place, at, at, at, n))
    in_chunks(RETRIES, lambda at, n: execute(FILL_RETRIES, groups[0].pk, log.pk, at, n))
    for table in ("ems_msg", "ems_topic_group_log", "ems_dead_msg", "ems_retry_msg"):
        execute(f"ANALYZE TABLE {table}")
    run_steps()


def deliver(group: int, partition: int, count: int) -> None:
    place = (group, partition)
    in_chunks(count, lambda at, n: execute(FILL_DELIVERIES, *place, at, at, at, n))


def in_chunks(count, write) -> None:
    for start in range(0, count, 100_000):
        write(start, min(100_000, count - start))


def execute(statement: str, *parameters: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters or None)
        if cursor.description:
            cursor.fetchall()


def scalar(statement: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return int(cursor.fetchall()[-1][0])
