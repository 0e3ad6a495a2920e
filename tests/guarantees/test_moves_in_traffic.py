"""A topic moves while producers and consumers run. Real processes."""

from __future__ import annotations

import pytest
from django.core.management import call_command

from streams.models import Message, Partition, Topic
from streams.observe.audit.walk import audit
from streams.operate.topics import create
from tests.hostapp.models import Handled
from tests.processes import wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("clean_registry"),
    pytest.mark.mysql,
    pytest.mark.exhaustive,
    pytest.mark.timeout(300),
]

# What a producer sends begins at its number times this.
MANY = 1_000_000

PRODUCER = """
import sys, time
from streams import send
from streams.errors import TopicDenied
from streams.sharding import alias_of
from tests.hostapp.models import Handled

me = int(sys.argv[1])
sent = Handled.objects.filter(group="sent", partition=me)
n = sent.count()
while not Handled.objects.filter(group="stop").exists():
    try:
        send("orders", me * 1_000_000 + n, key=str(n % 7), using=alias_of("orders"))
    except TopicDenied:
        print("denied", flush=True)
        time.sleep(0.05)
        continue
    Handled.objects.create(group="sent", topic="orders", partition=me, offset=n, value=n)
    n += 1
"""

CONSUMER = """
import sys
from streams import consumer
from tests.hostapp.models import Handled
from django.core.management import call_command

def note(group, message):
    Handled.objects.create(group=group, topic=message.key, partition=message.partition,
                           offset=message.offset, value=message.body)

@consumer("orders", group="mail", start="earliest")
def mail(message):
    note("mail", message)

@consumer("orders", group="ledger", start="earliest", ordered=True)
def ledger(message):
    note("ledger", message)

call_command("ems_consume", "--database", sys.argv[1])
"""


def noted(group):
    return Handled.objects.filter(group=group)


def test_everything_is_handled_once_while_a_topic_moves(spawn, ems_settings):
    create("orders", 3, "default")
    ems_settings(SHARDS={"later.*": "other"}, POLL_SECONDS=0.1)
    call_command("ems_topics", "routes", "--accept")
    consumers = [spawn(CONSUMER, "default") for _n in range(2)]
    producers = [spawn(PRODUCER, str(n)) for n in range(3)]
    wait_for(lambda: noted("mail").count() > 100, "messages")
    call_command("ems_topics", "move", "orders", "--to", "other")
    moved_at = dict(Partition.objects.using("other").values_list("number", "first_offset"))
    for producer in producers:
        producer.expect("denied")
    Handled.objects.create(group="stop", topic="", partition=0, offset=0, value="")
    for producer in producers:
        producer.succeed()
    noted("stop").delete()
    ems_settings(SHARDS={"orders": "other"})
    call_command("ems_topics", "routes", "--accept")
    # The old consumers go on for a while beside the new ones.
    consumers += [spawn(CONSUMER, "other") for _n in range(2)]
    before = noted("sent").count()
    producers = [spawn(PRODUCER, str(n)) for n in range(3)]
    wait_for(lambda: noted("sent").count() > before + 100, "messages after the move")
    Handled.objects.create(group="stop", topic="", partition=0, offset=0, value="")
    for producer in producers:
        producer.succeed()
    sent = noted("sent").count()
    for group in ("mail", "ledger"):
        wait_for(lambda: noted(group).count() >= sent, f"all in {group}")  # noqa: B023
    for consumer in consumers:
        consumer.terminate()
        consumer.succeed()
    for group in ("mail", "ledger"):
        places = sorted(noted(group).values_list("partition", "offset"))
        assert len(places) == sent  # each once
        ends = dict(Partition.objects.using("other").values_list("number", "next_offset"))
        assert places == [(number, n) for number in sorted(ends) for n in range(ends[number])]
        assert noted(group).values("value").distinct().count() == sent
    logs = [set(places_of("default")), set(places_of("other"))]
    assert not logs[0] & logs[1]
    assert len(logs[0] | logs[1]) == sent
    assert all(offset < moved_at[number] for number, offset in logs[0])
    for key in range(7):
        in_order = noted("ledger").filter(topic=str(key)).order_by("pk")
        values = [int(value) for value in in_order.values_list("value", flat=True)]
        for me in range(3):
            mine = [value for value in values if value // MANY == me]
            assert mine == sorted(mine)
    assert [*audit("default"), *audit("other")] == []
    assert Topic.objects.get().access == "read-only"


def places_of(alias):
    return Message.objects.using(alias).values_list("partition__number", "offset")
