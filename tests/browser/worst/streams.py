"""Writes thirty streams of Spark: one two million behind, one forgotten, one with a long name."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from streams.models import Partition, Reader, UtcNow
from tests.browser.worst.figures import BEHIND
from tests.browser.worst.site import messages

DAY = timedelta(days=1)
LONG = "flights-to-the-warehouse-of-the-whole-company-by-region-and-carrier-with-late-arrivals-"
NAMES = ("lake", "", "fraud-scores", "search index", "daily-report")
# Topic, name, messages behind, age of the oldest, last seen, protects.
STREAMS: tuple[tuple[str, str, int, timedelta, timedelta, bool], ...] = (
    ("orders", "warehouse", BEHIND + 7_777, 9 * DAY, timedelta(seconds=4), True),
    ("payments", "ledger of 2025", 1_200_000, 26 * DAY, 20 * DAY, True),
    ("mails", (LONG * 2)[:127], 41_000, 6.3 * DAY, timedelta(seconds=9), False),
    ("invoices", "", 5_000, 2 * DAY, 3 * DAY, False),
)


def streams(logs: dict[str, list[Partition]]) -> None:
    for number, (topic, name, behind, age, seen, protect) in enumerate(STREAMS):
        whole = sum(one.next_offset for one in logs[topic])
        places = {
            one.pk: one.next_offset - behind * one.next_offset // whole for one in logs[topic]
        }
        first = logs[topic][0]
        messages(first, places[first.pk], 1, age)
        write(number, first, name, places, seen, protect)
    stock = logs["stock"][0]
    gone = {stock.pk: stock.first_offset - 900}
    write(len(STREAMS), stock, "counts", gone, timedelta(hours=5), False)
    for number in range(len(STREAMS) + 1, 30):
        one = logs["page-views"]
        places = {log.pk: log.next_offset - 10 * (number % 3) for log in one}
        seen = timedelta(seconds=number % 10)
        write(number, one[0], NAMES[number % len(NAMES)], places, seen, number % 7 == 0)


def write(
    number: int,
    partition: Partition,
    name: str,
    places: dict[int, int],
    seen: timedelta,
    protect: bool,
) -> None:
    total = sum(places.values())
    more: dict[str, Any] = {"seen_at": UtcNow(-seen), "before_at": UtcNow(-seen - DAY / 1440)}
    more["first_seen_at"] = UtcNow(-90 * DAY)
    Reader.objects.create(
        topic=partition.topic,
        checkpoint=f"{number * 7919 * 65537 + 2**44:012x}"[-12:],
        name=name,
        positions={str(pk): at for pk, at in places.items()},
        total=total,
        before_total=total - 60 * 37 * number,
        protect=protect,
        **more,
    )
