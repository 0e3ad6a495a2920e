"""The lag of groups is what their rows say at this moment."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from streams import Outgoing, Reject, consumer, send, send_many
from streams.consume import registry
from streams.consume.outcome.any_order import Ends, settle_any_order
from streams.consume.outcome.dead_letter import redrive
from streams.consume.outcome.settle import settle
from streams.consume.subscription import subscribe
from streams.deliver.claim import Claimer
from streams.log.lag import Lag, lags
from streams.log.sequencer import sequence
from streams.metrics.reading import MetricReading
from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Message,
    Partition,
    RetryMessage,
    UtcNow,
)
from streams.models.consumer import LEASE
from streams.nouns.client import clients
from streams.testing import drain
from tests.consuming import fail

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def group(name: str = "mail", topic: str = "orders") -> ConsumerGroup:
    if not registry.find(topic, name):
        consumer(topic, group=name)(print)
    return subscribe(registry.find(topic, name), "default", "earliest")  # type: ignore[arg-type]


def lag(name: str = "mail") -> Lag:
    (found,) = lags(ConsumerGroup.objects.filter(name=name), "default")
    return found


def numbers(one: Lag) -> tuple[int | None, int, int, int, int]:
    return one.behind, one.open, one.waiting, one.dead, one.consumers


def sequenced(hours_ago: dict[int, int]) -> None:
    """As if these offsets had been sequenced so many hours ago."""
    for offset, hours in hours_ago.items():
        Message.objects.filter(offset=offset).update(sequenced_at=UtcNow(-HOUR * hours))


def hours(age: timedelta | None) -> float | None:
    return None if age is None else round(age / HOUR, 1)


def test_a_group_that_has_done_all_lags_in_nothing_and_its_age_is_unknown() -> None:
    group()
    send("orders", 1)
    drain()
    assert numbers(lag()) == (0, 0, 0, 0, 0)
    assert lag().age is None


def test_what_is_not_sequenced_is_not_behind() -> None:
    group()
    send("orders", 1)
    assert lag().behind == 0
    sequence("default")
    assert lag().behind == 1


def test_a_message_is_counted_where_it_is() -> None:
    @consumer("orders", group="mail", batch=2, max_retries=5)
    def handle(messages):
        return {messages[0]: Reject("no"), messages[1]: ValueError("later")}

    send_many([Outgoing("orders", n) for n in range(2)])
    drain()
    send_many([Outgoing("orders", n) for n in range(5)])
    sequence("default")
    claimer = Claimer(group(), "client", "thread", "default")
    claimed = claimer.claim(3, MINUTE)
    assert claimed
    Consumer.objects.create(client_id="me", group=group(), lease_until=UtcNow(LEASE))
    Consumer.objects.create(client_id="gone", group=group(), lease_until=UtcNow(-LEASE))
    assert numbers(lag()) == (2, 3, 1, 1, 1)
    settle(claimed, 4, max_retries=5)  # 2 and 3 are done
    assert numbers(lag()) == (2, 1, 1, 1, 1)


def test_what_is_settled_in_any_order_is_not_open() -> None:
    send_many([Outgoing("orders", n) for n in range(64)])
    sequence("default")
    claimer = Claimer(group(), "client", "thread", "default")
    Consumer.objects.create(client_id="client", group=group(), lease_until=UtcNow(LEASE))
    for settled in (2**63 - 2, None):  # all but the lowest of 63, and one that begins
        claimed = claimer.claim(63, MINUTE)
        assert claimed
        if settled:
            assert settle_any_order([Ends(claimed, settled)], "default") == []
    assert opened() == (2, 2, 2)
    first = Delivery.objects.order_by("pk")[0]
    Delivery.objects.filter(pk=first.pk).update(settled=2**62 + 3, progress=2)
    assert opened() == (61, 61, 61)


def opened() -> tuple[int, int, float]:
    """As the lag, the list of clients and the metrics have it."""
    (client,) = clients(Consumer.objects.select_related("group__topic"), "default")
    samples = MetricReading("default").samples()
    (metric,) = (value for name, _labels, value in samples if name == "ems_group_open_messages")
    return lag().open, client.open, metric


def test_a_retry_in_hand_is_open_and_not_waiting() -> None:
    consumer("orders", group="mail")(fail)
    send("orders", 1)
    drain()
    assert numbers(lag()) == (0, 0, 1, 0, 0)
    RetryMessage.objects.update(due_at=UtcNow())
    assert Claimer(group(), "client", "thread", "default").claim_retry(MINUTE)
    assert numbers(lag()) == (0, 1, 0, 0, 0)


def test_a_redriven_letter_is_not_dead() -> None:
    @consumer("orders", group="mail")
    def handle(message):
        raise Reject("no")

    send("orders", 1)
    drain()
    assert numbers(lag()) == (0, 0, 0, 1, 0)
    redrive(DeadMessage.objects.get())
    assert numbers(lag()) == (0, 0, 1, 0, 0)


def test_the_age_is_that_of_the_oldest_message_that_is_not_finished() -> None:
    consumer("orders", group="mail")(fail)
    send("orders", "fails")
    drain()
    send_many([Outgoing("orders", n) for n in range(3)])
    sequence("default")
    sequenced({0: 9, 1: 5, 2: 4, 3: 3})
    assert hours(lag().age) == 9.0  # the retry
    RetryMessage.objects.all().delete()
    delivery = Claimer(group(), "client", "thread", "default").claim(2, MINUTE)
    assert delivery
    assert hours(lag().age) == 5.0  # in hand
    settle(delivery, 2, max_retries=5)
    assert hours(lag().age) == 4.0
    settle(delivery, 3, max_retries=5)
    assert hours(lag().age) == 3.0  # not claimed


def test_the_age_of_a_message_that_is_gone_is_unknown() -> None:
    group()
    send("orders", 1)
    sequence("default")
    Message.objects.all().delete()
    assert (lag().behind, lag().age) == (1, None)


def test_a_redriven_letter_whose_message_is_gone_hides_no_age() -> None:
    consumer("orders", group="mail")(lambda message: (_ for _ in ()).throw(Reject("no")))
    send("orders", 0)
    drain()
    Message.objects.all().delete()
    Partition.objects.update(first_offset=1)
    send("orders", 1)
    sequence("default")
    sequenced({1: 3})
    assert redrive(DeadMessage.objects.get())
    assert (lag().waiting, lag().behind, hours(lag().age)) == (1, 1, 3.0)


def test_a_group_lags_by_all_of_its_partitions_and_is_as_old_as_the_oldest() -> None:
    group()
    send("orders", 1)
    sequence("default")
    first = Partition.objects.get()
    second = Partition.objects.create(topic=first.topic, number=1, next_offset=4)
    Cursor.objects.create(group=group(), partition=second, next_offset=1)
    row = Message.objects.get()
    row.pk, row.partition, row.offset = None, second, 1
    row.save()
    Message.objects.filter(partition=second).update(sequenced_at=UtcNow(-HOUR * 2))
    assert lag().behind == 1 + 3
    assert hours(lag().age) == 2.0


def test_a_replay_is_not_the_lag_of_the_group() -> None:
    group()
    send_many([Outgoing("orders", n) for n in range(3)])
    drain()
    Cursor.objects.create(group=group(), partition=Partition.objects.get(), replay=1)
    assert lag().behind == 0
    assert lag().age is None


def test_without_a_cursor_it_is_unknown_how_far_behind_a_group_is() -> None:
    group()
    Cursor.objects.all().delete()
    assert lag().behind is None


def test_groups_come_in_the_order_asked_for_with_as_many_statements_for_ten_as_for_one() -> None:
    group()
    send("orders", 1)
    sequence("default")
    with CaptureQueriesContext(
        connection,
    ) as one:
        lags(ConsumerGroup.objects.all(), "default")
    for number in range(9):
        group(f"g{number}")
    send("orders", 1)
    sequence("default")
    with CaptureQueriesContext(connection) as ten:
        found = lags(ConsumerGroup.objects.order_by("-id"), "default")
    assert len(ten) == len(one)
    assert [one.group.pk for one in found] == sorted((o.group.pk for o in found), reverse=True)
    assert {one.behind for one in found} == {2}
    assert lags([], "default") == []


def test_how_far_a_broadcast_group_is_is_unknown_and_never_nothing() -> None:
    consumer("orders", group="cache", mode="broadcast")(print)
    send("orders", 1)
    drain("cache")  # in a test its position is a row, which says nothing of clients elsewhere
    send("orders", 2)
    sequence("default")
    assert Cursor.objects.filter(group__name="cache").exists()
    assert (lag("cache").behind, lag("cache").age) == (None, None)
    assert numbers(lag("cache"))[1:] == (0, 0, 0, 0)
