"""What the metrics of the tables say is what the rows say at this moment."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from streams import Outgoing, Reject, Retry, consumer, send, send_many
from streams.consume import registry
from streams.consume.outcome.settle import release
from streams.consume.subscription import subscribe
from streams.database.retrying import INTERRUPTED, error_number
from streams.database.sql import metrics as sql
from streams.deliver.claim import Claimer
from streams.log.lag import lags
from streams.log.sequencer import sequence
from streams.metrics.catalogue import DATABASE
from streams.metrics.reading import MetricReading
from streams.models import Consumer, ConsumerGroup, Message, Topic, UtcNow
from streams.models.consumer import LEASE
from streams.operate.topics import grow
from streams.testing import drain

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

MINUTE = timedelta(minutes=1)
PLACE = "orders", "mail"


def group(name: str = "mail", topic: str = "orders", **options: object) -> ConsumerGroup:
    if not registry.find(topic, name):
        consumer(topic, group=name, **options)(print)  # type: ignore[call-overload]
    return subscribe(registry.find(topic, name), "default", "earliest")  # type: ignore[arg-type]


def read() -> dict[tuple[str, tuple[str, ...]], float]:
    return {(name, labels): value for name, labels, value in MetricReading("default").samples()}


def test_an_empty_installation_is_up_and_has_no_groups() -> None:
    found = read()
    assert found["ems_up", ()] == 1
    assert {name for name, _labels in found} >= {"ems_scrape_seconds", "ems_server_info"}
    assert not [name for name, _labels in found if name.startswith("ems_group")]


def test_offsets_are_counters_of_what_came_and_what_was_claimed() -> None:
    mail = group()
    send_many([Outgoing("orders", n) for n in range(5)])
    sequence("default")
    Claimer(mail, "c", "t", "default").claim(3, MINUTE)
    found = read()
    assert found["ems_sequenced_messages_total", ("orders", "0")] == 5
    assert found["ems_claimed_messages_total", (*PLACE, "0")] == 3
    assert found["ems_log_messages", ("orders", "0")] == 5
    assert found["ems_group_lag_messages", PLACE] == 2
    assert found["ems_group_open_messages", PLACE] == 3


def test_a_message_that_is_claimed_during_the_reading_is_no_negative_lag(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mail = group()
    rows = MetricReading._rows

    def with_a_claim(self: MetricReading, statement: str, *parameters: object) -> list[object]:
        found = rows(self, statement, *parameters)  # type: ignore[arg-type]
        if statement == sql.PARTITIONS:
            send("orders", 1)
            sequence("default")
            assert Claimer(mail, "c", "t", "default").claim(1, MINUTE)
        return found

    monkeypatch.setattr(MetricReading, "_rows", with_a_claim)
    found = read()
    assert found["ems_claimed_messages_total", (*PLACE, "0")] == 1
    assert found["ems_group_lag_messages", PLACE] == 0


def test_what_was_given_back_lags_again() -> None:
    mail = group()
    send_many([Outgoing("orders", n) for n in range(5)])
    sequence("default")
    claimed = Claimer(mail, "c", "t", "default").claim(3, MINUTE)
    assert claimed
    release(claimed)
    found = read()
    assert found["ems_group_lag_messages", PLACE] == 5
    assert found["ems_group_open_messages", PLACE] == 0


def test_the_figures_of_a_group_are_those_of_its_lag() -> None:
    @consumer("orders", group="mail")
    def mail(message):
        if message.body == 0:
            raise Retry(delay=3600)
        if message.body == 1:
            raise Reject("odd")

    group()
    send_many([Outgoing("orders", n) for n in range(4)])
    drain()
    send("orders", 5)
    sequence("default")
    Message.objects.update(sequenced_at=UtcNow(-MINUTE))
    one = ConsumerGroup.objects.get(name="mail")
    Consumer.objects.create(client_id="c", group=one, lease_until=UtcNow(LEASE))
    Consumer.objects.create(client_id="gone", group=one, lease_until=UtcNow(-LEASE))
    (lag,) = lags([one], "default")
    found = read()
    assert found["ems_group_lag_messages", PLACE] == lag.behind == 1
    assert found["ems_group_retries", PLACE] == lag.waiting == 1
    assert found["ems_group_dead_letters", PLACE] == lag.dead == 1
    assert found["ems_group_consumers", PLACE] == lag.consumers == 1
    assert lag.age is not None
    assert found["ems_group_oldest_message_seconds", PLACE] == pytest.approx(60, abs=20)


def test_a_group_with_nothing_to_do_is_zero_seconds_behind() -> None:
    group()
    send("orders", 1)
    drain()
    assert read()["ems_group_oldest_message_seconds", PLACE] == 0


def test_a_paused_group_is_paused() -> None:
    one = group()
    assert read()["ems_group_paused", PLACE] == 0
    ConsumerGroup.objects.filter(pk=one.pk).update(paused=True)
    assert read()["ems_group_paused", PLACE] == 1


def test_a_broadcast_group_has_no_lag_which_only_its_clients_know() -> None:
    group("cache", mode="broadcast")
    send("orders", 1)
    sequence("default")
    found = read()
    assert found["ems_group_consumers", ("orders", "cache")] == 0
    assert ("ems_group_lag_messages", ("orders", "cache")) not in found


def test_the_inbox_tells_what_is_due_and_when_the_next_message_comes() -> None:
    send("orders", 1)
    send("orders", 2)
    send("orders", 3, delay=3600)
    Message.objects.filter(offset=None, body=b"1").update(created_at=UtcNow(-MINUTE))
    found = read()
    assert found["ems_inbox_messages", ("orders",)] == 2
    assert found["ems_inbox_oldest_seconds", ("orders",)] == pytest.approx(60, abs=20)
    assert found["ems_next_delayed_seconds", ("orders",)] == pytest.approx(3600, abs=20)


def test_a_delayed_message_that_has_come_due_is_as_old_as_its_due_time() -> None:
    send("orders", 1, delay=3600)
    Message.objects.update(created_at=UtcNow(-60 * MINUTE), due_at=UtcNow(-MINUTE))
    found = read()
    assert found["ems_inbox_messages", ("orders",)] == 1
    assert found["ems_inbox_oldest_seconds", ("orders",)] == pytest.approx(60, abs=20)
    assert ("ems_next_delayed_seconds", ("orders",)) not in found


def test_counts_end_so_that_a_scrape_costs_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "INBOX_AT_MOST", 3)
    monkeypatch.setattr(sql, "COUNT_AT_MOST", 2)

    @consumer("orders", group="mail", batch=10)
    def mail(messages):
        return {message: Reject("odd") for message in messages}

    send_many([Outgoing("orders", n) for n in range(6)])
    drain()
    send_many([Outgoing("orders", n) for n in range(6)])
    found = read()
    assert found["ems_group_dead_letters", PLACE] == 2
    assert found["ems_inbox_messages", ("orders",)] == 3


def test_a_scrape_takes_thirteen_statements_at_most_however_many_topics_there_are() -> None:
    for topic in range(6):
        group(topic=f"topic-{topic}")
        grow(Topic.objects.get(name=f"topic-{topic}"), 3, "default")
        send_many([Outgoing(f"topic-{topic}", n) for n in range(6)])
    sequence("default")
    send_many([Outgoing(f"topic-{topic}", 1) for topic in range(6)])
    with CaptureQueriesContext(
        connection,
    ) as caught:
        read()
    assert len(caught) <= 13, "\n".join(query["sql"][:200] for query in caught)


def test_names_are_those_of_the_namespace(ems_settings) -> None:
    group()
    send("orders", 1)
    ems_settings(NAMESPACE="blue")
    group("stock", "goods")
    send("goods", 1)
    sequence("default")
    found = read()
    assert found["ems_group_lag_messages", ("goods", "stock")] == 1
    assert found["ems_sequenced_messages_total", ("goods", "0")] == 1
    named = [labels[0] for name, labels in found if "topic" in DATABASE[name].labels]
    assert set(named) == {"goods"}


def test_every_sample_has_the_labels_of_the_catalogue() -> None:
    group()
    send("orders", 1, delay=10)
    send("orders", 1)
    drain()
    for name, labels in read():
        assert len(labels) == len(DATABASE[name].labels), name


@pytest.mark.mysql
def test_the_server_tells_of_its_transactions() -> None:
    found = read()
    assert found["ems_oldest_transaction_seconds", ()] >= 0
    assert found["ems_history_list_length", ()] >= 0


@pytest.mark.mysql
def test_a_statement_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "SECONDS", 1)
    columns = ", ".join(f"information_schema.COLUMNS c{n}" for n in range(5))
    with pytest.raises(OperationalError) as caught:
        MetricReading("default")._rows(f"SELECT COUNT(*) FROM {columns}")
    assert error_number(caught.value) in INTERRUPTED
