"""What the pages show in a browser, while traffic runs, is what plain SQL counts at that moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.db.models import F

from monitoring.models import GroupSample, PartitionSample
from monitoring.pages import base
from streams.database.clock import database_now
from streams.database.snapshot import snapshot
from streams.models import ConsumerGroup, Partition
from tests.browser.chromium import Tab
from tests.browser.shop import CONSUMER, PRODUCER, figure, number, page, row
from tests.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = timedelta(minutes=1)

# Counted by hand: each is one statement of plain SQL, without a line of EMS.
CURSORS = "FROM ems_cursor c JOIN ems_partition p ON p.id = c.partition_id WHERE c.replay = 0"
BY_HAND = {
    "behind": f"SELECT c.group_id, SUM(p.next_offset - c.next_offset) {CURSORS} GROUP BY 1",
    "given back": "SELECT group_id, SUM(last_offset + 1 - progress) FROM ems_topic_group_log"
    " WHERE state = 'START' AND token = '' GROUP BY 1",
    "open": "SELECT group_id, SUM(last_offset + 1 - progress) FROM ems_topic_group_log"
    " WHERE state = 'START' AND token <> '' GROUP BY 1",
    "dead": "SELECT group_id, COUNT(*) FROM ems_dead_msg WHERE redriven_at IS NULL GROUP BY 1",
    "retries": "SELECT group_id, COUNT(*) FROM ems_retry_msg WHERE delivery_id IS NULL GROUP BY 1",
    "clients": "SELECT group_id, COUNT(*) FROM ems_client GROUP BY 1",
    "end": "SELECT number, next_offset FROM ems_partition",
    "kept": "SELECT topic_id, SUM(next_offset - first_offset) FROM ems_partition GROUP BY 1",
    "inbox": "SELECT partition_id, COUNT(*) FROM ems_msg WHERE {offset} IS NULL GROUP BY 1",
    "at": f"SELECT c.group_id, c.next_offset {CURSORS}",
    "done": "SELECT group_id, done FROM ems_monitoring_sample_group",
}


class Counted:
    """Counts in the snapshot of each page that is read; ``of`` are the counts of the last one."""

    def __init__(self) -> None:
        self.of: dict[str, dict[int, float]] = {}
        self.at: Any = None

    @contextmanager
    def snapshot(self, using: str) -> Iterator[None]:
        connection = connections[using]
        offset = connection.ops.quote_name("offset")
        with self._original(using), connection.cursor() as cursor:
            for name, sql in BY_HAND.items():
                cursor.execute(sql.format(offset=offset))
                self.of[name] = {key: float(value) for key, value in cursor.fetchall() if value}
            yield
            self.at = database_now(using)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        self._original = snapshot
        patch.setattr(base, "snapshot", self.snapshot)

    def __call__(self, name: str, key: int) -> float:
        return self.of[name].get(key, 0.0)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    found = Counted()
    found.install(monkeypatch)
    return found


@pytest.fixture
def traffic(spawn: Any) -> Iterator[None]:
    """A producer and a consumer that are at work, and its sample, as if it were a minute old."""
    producer, shop = spawn(PRODUCER), spawn(CONSUMER)
    shop.expect("open")
    producer.expect("sent 100")
    wait_for(PartitionSample.objects.exists, "the sample that the consumer takes")
    older = {"minute": F("minute") - MINUTE, "taken_at": F("taken_at") - MINUTE}
    for model in (PartitionSample, GroupSample):
        model.objects.update(**older)
    yield
    for child in (producer, shop):
        assert child.process.poll() is None, child.text()


@pytest.mark.exhaustive
def test_the_figures_of_each_page_are_those_counted_by_hand_while_traffic_runs(
    tab: Tab, counted: Counted, traffic: None
) -> None:
    groups = {group.name: group.pk for group in ConsumerGroup.objects.all()}
    partition = Partition.objects.get()
    sampled = PartitionSample.objects.earliest("minute")

    def behind(pk: int) -> float:
        return counted("behind", pk) + counted("given back", pk)

    def is_row_of_a_group(name: str) -> None:
        shown, pk = row(tab, name), groups[name]
        expected = {
            "Behind": behind(pk),
            "Retries": counted("retries", pk),
            "Dead": counted("dead", pk),
            "Consumers": counted("clients", pk),
        }
        assert {label: number(shown[label]) for label in expected} == expected

    def came_in() -> float:
        return counted("end", 0) - sampled.next_offset

    tab.go(page("changelist") + "?refresh=off")
    assert number(figure(tab, "Behind")) == sum(map(behind, groups.values()))
    assert number(figure(tab, "Dead letters that wait")) == sum(counted.of["dead"].values())
    seconds = (counted.at - sampled.taken_at).total_seconds()
    assert number(figure(tab, "Published")) == pytest.approx(came_in() / seconds, rel=0.05)
    for name in groups:
        is_row_of_a_group(name)
    orders = row(tab, "orders")
    assert number(orders["Kept"]) == counted("kept", partition.topic_id)
    assert number(orders["Inbox"]) == counted("inbox", partition.pk)
    assert number(orders["Messages, 1h"]) == came_in()

    first = counted("end", 0)
    tab.go(page("groups") + "?refresh=off")
    for name in groups:
        is_row_of_a_group(name)
    tab.go(page("topics") + "?refresh=off")
    assert number(row(tab, "orders")["Kept"]) == counted("kept", partition.topic_id)

    tab.go(page("topic", partition.topic_id) + "?refresh=off")
    assert number(figure(tab, "Kept")) == counted("kept", partition.topic_id)
    assert number(row(tab, "orders/0")["End"]) == counted("end", 0)
    is_row_of_a_group("billing")

    pk = groups["billing"]
    tab.go(page("group", pk) + "?refresh=off")
    assert number(figure(tab, "Behind")) == behind(pk)
    assert number(figure(tab, "Dead letters")) == counted("dead", pk) > 0
    place = row(tab, "orders/0")
    assert number(place["End"]) == counted("end", 0)
    assert number(place["The group"]) == counted("at", pk)
    facts = dict(zip(tab.texts(".ems-facts dt"), tab.texts(".ems-facts dd"), strict=True))
    assert number(facts["In hand"]) == counted("open", pk)
    classes = row(tab, "tests.browser.shop.CardRefused")
    assert number(classes["Count"]) == min(1000, counted("dead", pk))
    assert counted("end", 0) > first  # the traffic has not stopped
