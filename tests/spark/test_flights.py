"""The figures of all flights of the demo, sent and consumed by EMS itself, counted by hand."""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from collections.abc import Sequence

import pytest

from monitoring.models import Consumption, ErrorClass, HotKey, Traffic
from streams import Outgoing, ReceivedMessage, consumer, send_many
from streams.models import DeadMessage, Message
from tests.consuming import consume_the_rest
from tests.spark import traffic_of_a_day as day
from tests.spark.test_process import ROOT
from tests.spark.test_rollups import Roll, assert_end_to_end, consumption_rows, traffic_rows

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
    pytest.mark.one_server,
]

FLIGHTS = ROOT / "fixtures" / "flights.csv.gz"


@pytest.fixture
def flights() -> list[dict[str, str]]:
    with gzip.open(FLIGHTS, "rt", encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["departed"]]


@pytest.mark.exhaustive
def test_the_roll_up_of_all_flights_is_what_was_sent_and_done(roll: Roll, flights) -> None:
    @consumer("flights", group="board", batch=1000)
    def board(messages: Sequence[ReceivedMessage]) -> None: ...

    @consumer("flights", group="billing", batch=500, max_retries=1)
    def billing(messages: Sequence[ReceivedMessage]) -> dict[ReceivedMessage, BaseException]:
        late = [m for m in messages if int(m.body["delay"]) >= 300]
        return {message: TimeoutError("the desk is busy") for message in late}

    keys = [f"{row['carrier']}{row['flight']}" for row in flights]
    send_many(Outgoing("flights", row, key=key) for row, key in zip(flights, keys, strict=True))
    for group in ("board", "billing"):
        consume_the_rest(group)
    roll()
    late = sum(int(row["delay"]) >= 300 for row in flights)
    assert late > 0
    assert sum(row.messages for row in Traffic.objects.all()) == len(flights) == 10_388
    sizes = Message.objects.values_list("size", flat=True)
    assert sum(row.bytes for row in Traffic.objects.all()) == sum(sizes)
    assert traffic_rows() == day.traffic_by_hand()
    assert_end_to_end()
    assert consumption_rows() == day.consumption_by_hand()
    done = Counter[str]()
    for row in Consumption.objects.select_related("group"):
        done[f"{row.group.name} consumed"] += row.consumed
        done[f"{row.group.name} failed"] += row.failed
        done[f"{row.group.name} dead"] += row.dead
    assert dict(done) == {
        "board consumed": 10_388,
        "board failed": 0,
        "board dead": 0,
        "billing consumed": 10_388 - late,
        "billing failed": 2 * late,
        "billing dead": late,
    }
    assert DeadMessage.objects.count() == late
    errors = ErrorClass.objects.all()
    assert {row.error_class for row in errors} == {"TimeoutError"}
    assert (sum(r.failed for r in errors), sum(r.dead for r in errors)) == (2 * late, late)
    hottest = sorted(Counter(keys).items(), key=lambda item: (-item[1], item[0]))[:20]
    found = HotKey.objects.order_by("-hour", "place")
    assert [(row.key, row.messages) for row in found] == hottest
