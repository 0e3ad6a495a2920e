"""Group1 and Group4 on A, Group2 and Group3 on B, the ordered group Order and the broadcast group
All on O: each writes a record of every message that it is given. A check-back knows of all work.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from random import SystemRandom
from typing import Any

from django.conf import settings
from django.db import Error, connection

from streams import Decision, PreparedMessage, ReceivedMessage, checkback, consumer
from tests.lab.scenarios.models import Sent
from tests.lab.scenarios.preparing import CHECKER

BATCH = 100
FAILING = 0.02  # of the calls of the ordered group

chance = SystemRandom()

INSERT = (
    "INSERT INTO scenarios_record (topic, `group`, `partition`, `offset`, producer, n, process,"
    " times, at) VALUES {} ON DUPLICATE KEY UPDATE times = times + 1"
)


def record(messages: Sequence[ReceivedMessage]) -> None:
    values: list[Any] = []
    for m in messages:
        producer, n = m.body
        values += [m.topic, m.group, m.partition, m.offset, producer, n, os.getpid()]
    row = "(%s, %s, %s, %s, %s, %s, %s, 1, UTC_TIMESTAMP(6))"
    with connection.cursor() as cursor:
        cursor.execute(INSERT.format(", ".join([row] * len(messages))), values)


for topic, group in (("A", "Group1"), ("B", "Group2"), ("B", "Group3"), ("A", "Group4")):
    consumer(topic, group=group, batch=BATCH, threads=2, atomic=settings.SCENARIO_ATOMIC)(record)


@checkback(CHECKER)
def was_done(message: PreparedMessage) -> Decision:
    """Look for the work, or take its place: then it can never be done."""
    found, _created = Sent.objects.get_or_create(
        topic=message.topic,
        producer=message.biz,
        n=int(message.biz_key),
        defaults={"is_void": True},
    )
    return Decision.ROLLBACK if found.is_void else Decision.COMMIT


@consumer("O", group="All", batch=BATCH, mode="broadcast", start="earliest")
def record_insistently(messages: Sequence[ReceivedMessage]) -> None:
    """Nobody repeats what fails in a broadcast group: this handler does it itself."""
    while True:
        try:
            return record(messages)
        except Error:
            connection.close()
            time.sleep(0.2)


@consumer("O", group="Order", ordered=True, threads=2, atomic=settings.SCENARIO_ATOMIC)
def record_in_order(message: ReceivedMessage) -> None:
    if chance.random() < FAILING:
        raise OSError("as it happens")
    record([message])
