"""Consumers of an ordered group share its partitions, and nobody's share is left behind."""

from __future__ import annotations

from collections import Counter

import pytest

from streams import Outgoing, send_many
from streams.models import Consumer, Delivery
from streams.operate.topics import create
from streams.testing import sent
from tests.hostapp.models import Handled
from tests.processes import Spawn, wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mysql, pytest.mark.slow]

PARTITIONS, PROCESSES, MESSAGES = 6, 3, 600
CONSUMER = """
import time
from django.core.management import call_command
from streams import consumer
from tests.hostapp.models import Handled

@consumer("orders", group="mail", ordered=True, atomic=True, threads=2, batch=None)
def handle(message):
    time.sleep(0.005)  # some work: otherwise the first to come has done all
    Handled.objects.create(
        group=message.group, topic=message.topic, partition=message.partition,
        offset=message.offset, value=message.body,
    )

call_command("ems_consume", "--start", "earliest")
"""


def test_each_process_has_its_share_and_a_killed_ones_is_taken_over(spawn: Spawn, ems_settings):
    ems_settings(POLL_SECONDS=0.1, RETRY_DELAYS=[0.1])
    create("orders", PARTITIONS, "default")
    children = [spawn(CONSUMER) for _ in range(PROCESSES)]
    wait_for(lambda: Consumer.objects.live().count() == PROCESSES)
    _send(MESSAGES)
    wait_for(lambda: Handled.objects.count() == MESSAGES)
    shares = Counter(_process(client) for client in _claims())
    assert len(shares) == PROCESSES
    assert min(shares.values()) >= sum(shares.values()) / PROCESSES / 3
    children.pop().kill()
    _send(MESSAGES)
    wait_for(lambda: Handled.objects.count() == 2 * MESSAGES, timeout=60)
    _assert_in_order()


def _send(count: int) -> None:
    first = len(sent("orders"))
    send_many([Outgoing("orders", first + n, partition=n % PARTITIONS) for n in range(count)])


def _claims() -> list[str]:
    return list(Delivery.objects.values_list("client_id", flat=True))


def _process(client_id: str) -> str:
    return client_id.split("@")[1]


def _assert_in_order() -> None:
    for number in range(PARTITIONS):
        rows = Handled.objects.filter(partition=number).order_by("id")
        offsets = list(rows.values_list("offset", flat=True))
        assert offsets == list(range(len(offsets)))
