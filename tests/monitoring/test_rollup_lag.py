"""The lag that is rolled up is the live one: the same figures from the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from monitoring.options import option_file
from sparkjobs.config import Config
from sparkjobs.database import connected
from sparkjobs.rollup import lag as rolled
from streams import Outgoing, Reject, consumer, send_many
from streams.consume.outcome.dead_letter import redrive
from streams.log.lag import lags
from streams.log.sequencer import sequence
from streams.models import (
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Kind,
    Message,
    Mode,
    Partition,
    State,
    Topic,
    UtcNow,
)
from streams.testing import drain

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]

HOURS = timedelta(hours=1)


@pytest.fixture
def connection() -> Iterator[Any]:
    with option_file("default") as path, connected(Config.load(str(path))) as opened:
        yield opened


def compare(connection: Any) -> dict[str, rolled.Lag]:
    """Compare all groups; return the lag of each by its name."""
    groups = ConsumerGroup.objects.exclude(mode=Mode.BROADCAST)
    live = {lag.group.pk: lag for lag in lags(ConsumerGroup.objects.all(), "default")}
    found = {lag.group_id: lag for lag in rolled.lags(connection)}
    assert set(found) == {group.pk for group in groups}
    for pk, lag in found.items():
        same = live[pk]
        assert (lag.behind, lag.open, lag.waiting, lag.dead) == (
            *(same.behind, same.open, same.waiting, same.dead),
        ), same.group
        age = same.age and same.age.total_seconds()
        assert lag.age_seconds == (None if age is None else pytest.approx(age, abs=30)), same.group
    return {group.name: found[group.pk] for group in groups}


def log(messages: int = 12, hours: int = 3) -> Partition:
    """A topic whose oldest message came ``hours`` ago, and each other one a minute later."""
    topic = Topic.objects.create(name="orders")
    send_many([Outgoing("orders", number) for number in range(messages)])
    sequence("default")
    begin = timezone.now() - hours * HOURS
    for row in Message.objects.filter(partition__topic=topic):
        at = begin + timedelta(minutes=row.offset or 0)
        Message.objects.filter(pk=row.pk).update(sequenced_at=at)
    return topic.partitions.get()


def group(partition: Partition, name: str, next_offset: int, **named: Any) -> ConsumerGroup:
    made = ConsumerGroup.objects.create(topic=partition.topic, name=name, **named)
    Cursor.objects.create(group=made, partition=partition, next_offset=next_offset)
    return made


def claim(of: ConsumerGroup, partition: Partition, first: int, last: int, **named: Any) -> Delivery:
    given = {"progress": first, "token": "t", "state": State.START, **named}
    return Delivery.objects.create(
        group=of,
        partition=partition,
        first_offset=first,
        last_offset=last,
        deadline=UtcNow(timedelta(minutes=1)),
        **given,
    )


def test_of_claims_retries_and_ranges_that_were_given_back(connection: Any) -> None:
    partition = log()
    busy = group(partition, "busy", 8)
    claim(busy, partition, 4, 7, progress=5)
    claim(busy, partition, 2, 3, token="")
    busy.retries.create(partition=partition, offset=1, attempt=2, due_at=UtcNow())
    group(partition, "done", 12)
    ConsumerGroup.objects.create(topic=partition.topic, name="new")
    found = compare(connection)
    assert (found["busy"].behind, found["busy"].open, found["busy"].waiting) == (4 + 2, 3, 1)
    assert found["done"].age_seconds is None
    assert found["new"].behind is None


def test_a_replay_of_old_messages_has_no_age(connection: Any) -> None:
    partition = log()
    again = group(partition, "again", 12)
    again.cursors.create(partition=partition, replay=1, next_offset=6, stop_offset=9)
    claim(again, partition, 2, 5, kind=Kind.REPLAY)
    claim(again, partition, 0, 1, kind=Kind.REPLAY, token="")
    found = compare(connection)["again"]
    assert (found.behind, found.open, found.age_seconds) == (0, 4, None)


def test_a_redriven_letter_whose_message_was_purged_does_not_hide_the_age_of_others(
    connection: Any,
) -> None:
    @consumer("orders", group="mail", max_retries=0)
    def handle(message: Any) -> None:
        if message.body == 0:
            raise Reject("no")

    partition = log()
    drain()
    assert redrive(DeadMessage.objects.get())
    mail = ConsumerGroup.objects.get(name="mail")
    mail.cursors.update(next_offset=10)
    claim(mail, partition, 1, 9, progress=1)
    Message.objects.filter(offset__lt=4).delete()
    Partition.objects.filter(pk=partition.pk).update(first_offset=4)
    found = compare(connection)["mail"]
    # The claim's first message is purged, too, as the letter's: what is behind has an age.
    assert found.age_seconds == pytest.approx(3 * 3600 - 600, abs=60)
    assert found.waiting == 1


def test_of_an_ordered_group_whose_cursor_went_back(connection: Any) -> None:
    @consumer("orders", group="stock", ordered=True)
    def handle(message: Any) -> None:
        if message.body == 2:
            raise ValueError("not yet")

    log()
    drain()
    found = compare(connection)["stock"]
    assert found.behind == 10
    assert found.age_seconds == pytest.approx(3 * 3600 - 120, abs=60)


def test_a_broadcast_group_has_none(connection: Any) -> None:
    partition = log()
    ConsumerGroup.objects.create(topic=partition.topic, name="all", mode=Mode.BROADCAST)
    group(partition, "one", 3)
    assert set(compare(connection)) == {"one"}
