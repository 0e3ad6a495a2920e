"""Broadcast consumers are woken by the same look as the others, at no statement of their own."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from streams import consumer, send
from streams.models import ConsumerGroup, Message, Partition, Topic
from streams.process.pool import LOOK_SECONDS, Pool
from tests.consuming import Process

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("prices")]


@pytest.fixture
def client(start):
    client = start(drain=True)
    client.forget_wake_up()  # the first look is over
    return client


def test_a_look_sequences_and_wakes_the_client(client):
    send("prices", 1)
    client.poller.step()
    assert not Message.objects.inbox().exists()
    assert client.woken


def test_a_client_that_has_read_all_is_not_woken(client):
    send("prices", 1)
    client.poller.step()
    assert client.worker.step() == 0.0
    assert client.worker.step() == LOOK_SECONDS
    client.forget_wake_up()
    client.poller.step()
    assert not client.woken


def test_a_message_in_a_partition_that_is_new_wakes_the_client(client):
    Partition.objects.create(topic=Topic.objects.get(), number=1)
    client.poller.step()
    assert client.woken
    client.worker.step()
    client.forget_wake_up()
    client.poller.step()
    assert not client.woken


def test_a_message_to_another_topic_does_not_wake_the_client(client):
    send("orders", 1)
    client.poller.step()
    assert not client.woken


def test_a_paused_group_is_not_woken(client):
    ConsumerGroup.objects.update(paused=True)
    client.feed._fresh_until = 0
    send("prices", 1)
    client.poller.step()
    assert not client.woken


def test_with_drain_it_stops_when_all_is_read(client):
    send("prices", 1)
    client.poller.step()
    assert not client.lifecycle.stopping
    client.worker.step()
    client.poller.step()
    assert client.lifecycle.stopping


def test_a_look_for_many_broadcast_groups_costs_what_one_costs(client, start):
    def cost():
        with CaptureQueriesContext(connection) as queries:
            client.poller.step()
        return len(queries)

    client.poller.step()
    alone = cost()
    for number in range(5):
        consumer(f"topic-{number}", group=f"group-{number}", mode="broadcast")(print)
        more = start(f"group-{number}").feed
        client.poller._pool = Pool([*client.poller._pool.feeds, more])
    assert cost() == alone


@pytest.mark.usefixtures("clean_registry")
def test_cluster_groups_are_not_asked_for_broadcasts(client):
    consumer("prices", group="mail")(print)
    assert not Process("mail").feed.behind({Topic.objects.get().pk: {1: 5}})
