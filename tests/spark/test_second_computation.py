"""All roll-ups of a random, hostile day, computed a second time in plain Python, row by row.

Names differ only in case, batches fail with several errors, processes die, calls end in the past,
messages are missing, wait for their key or are postponed, letters come late: whatever Spark and the
server make of it must be the same.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from django.utils import timezone

from monitoring.models import (
    BacklogLevel,
    Consumption,
    ConsumptionLevel,
    ErrorClass,
    ErrorLevel,
    GroupSample,
    HotKey,
    Latency,
    LatencyLevel,
    Traffic,
    TrafficLevel,
)
from streams.models import (
    IMMEDIATE,
    ConsumerGroup,
    DeadMessage,
    Delivery,
    Kind,
    Message,
    Partition,
    RetryMessage,
    State,
    Topic,
    UtcNow,
)
from tests.spark import traffic_of_a_day as day

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
# In each partition; the last ones come, and are handled, after the first roll-up.
MESSAGES, LATER = 90, 7
HOURS = 20
KEYS = (None, "a", "A", "ä", "straße", "STRASSE", "\N{SNOWMAN}", "a.b")
NAMES = ("HTTPError", "HttpError", "httperror", "Störung", "Storung", "Übel", "X" * 300)
# A project's own error of a name that EMS has, too.
CLASSES = (*NAMES, "Postpone")
TAGS = ("", "paid", "Paid", "PAID")
CLIENTS, THREADS = ("host@1", "HOST@1", "höst@1"), ("w-1", "W-1")
SETTLED = (State.DONE, State.RETRY, State.RELEASED)
# A place in a table, and its figures.
Rows = dict[tuple[Any, ...], tuple[Any, ...]]


# -- the day --------------------------------------------------------------------------------------


class HostileDay:
    """What EMS would have left in its tables, and worse."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311
        self.begin = timezone.now().replace(second=0, microsecond=0) - HOURS * HOUR
        self.partitions: list[Partition] = []
        # By delivery: the offsets that wait for their key, or its rate, and the rows of those.
        self.waits: dict[tuple[Any, ...], set[int]] = {}
        self.retries: list[RetryMessage] = []
        for name in ("orders", "Orders-2"):
            topic = Topic.objects.create(name=name)
            self.partitions += [topic.partitions.get()]
            self.partitions += [Partition.objects.create(topic=topic, number=1)]
            for group, tags in (("mail", None), ("Mail", ["paid", "Paid"])):
                ConsumerGroup.objects.create(topic=topic, name=group, tags=tags)
        for partition in self.partitions:
            self.sent(partition)
        deliveries = [
            one
            for partition in self.partitions
            for group in ConsumerGroup.objects.filter(topic=partition.topic_id)
            for one in self.consumed(partition, group)
        ]
        deliveries += self.in_hand()
        # Ids rise with the claims.
        Delivery.objects.bulk_create(sorted(deliveries, key=lambda one: one.claimed_at))
        RetryMessage.objects.bulk_create(self.retries)
        self.letters()
        self.sampled()

    def sent(self, partition: Partition) -> None:
        at, rows = self.begin, []
        for offset in range(MESSAGES):
            at += self.random.choice([0, 1, 30, 1700]) * day.SECOND * self.random.random()
            at = min(at, self.begin + (HOURS - 1) * HOUR)
            size = self.random.randrange(9)
            rows.append(
                Message(
                    partition=partition,
                    offset=offset,
                    key=self.random.choice(KEYS),
                    tag=self.random.choice(TAGS),
                    body=b"x" * size,
                    body_type="bytes",
                    size=size,
                    producer="p",
                    due_at=at if self.random.random() < 0.1 else IMMEDIATE,
                    created_at=at - self.random.random() * MINUTE,
                    sequenced_at=at,
                )
            )
        minutes = [day.minute_of(row.sequenced_at) for row in rows]
        # A hole lies inside of a minute: at its edge, nobody knows to which one it belongs.
        holes = [
            at
            for at in range(1, MESSAGES - 1)
            if minutes[at - 1] == minutes[at] == minutes[at + 1] and self.random.random() < 0.05
        ]
        Message.objects.bulk_create([row for row in rows if row.offset not in holes])
        Partition.objects.filter(pk=partition.pk).update(next_offset=MESSAGES - LATER)

    def consumed(self, partition: Partition, group: ConsumerGroup) -> Iterable[Delivery]:
        first = 0
        while first < MESSAGES - LATER:
            last = min(first + self.random.randrange(9), MESSAGES - LATER - 1)
            claimed = self.begin + self.random.random() * (HOURS - 3) * HOUR
            long = self.random.random() < 0.1
            took = self.random.random() * (timedelta(hours=2) if long else 2 * MINUTE)
            one = day.delivery(group, partition, (first, last), claimed, took)
            one.client_id = self.random.choice(CLIENTS)
            one.thread = self.random.choice(THREADS)
            self.random.choice(
                [
                    *(self.fails, self.dies, self.gives_back, self.is_again, self.is_retried),
                    *(self.is_replayed, self.is_skipped, self.lacks, self.passes, self.passes),
                    *(self.has_some_that_wait, self.has_some_that_wait, lambda one: None),
                ]
            )(one)
            yield one
            yield from self.come_again(one)
            first = last + 1

    def in_hand(self) -> Iterable[Delivery]:
        """Claims that are open while the first roll-up works, of any age."""
        for number, hours in enumerate((0.1, 0.5, 3, 9)):
            group = ConsumerGroup.objects.order_by("pk")[number % 2]
            claimed = timezone.now() - hours * HOUR
            span = number, number + 4
            one = day.delivery(group, self.partitions[0], span, claimed, None)
            one.client_id = CLIENTS[number % 2]
            yield one

    def fails(self, one: Delivery) -> list[int]:
        failed = self.random.sample(list(one.offsets), self.random.randint(1, len(one.offsets)))
        errors: dict[str, list[int]] = {}
        for offset in failed:
            one.error = f'{self.random.choice(CLASSES)}: "{offset}": no'
            errors.setdefault(one.error, []).append(offset)
        one.state, one.failed = State.RETRY, len(failed)
        one.dead = self.random.randint(0, len(failed))
        if len(one.offsets) > 1:
            noted = dict(list(errors.items())[: self.random.choice([1, 99])])
            one.errors = json.dumps(noted, ensure_ascii=False)
        return failed

    def has_some_that_wait(self, one: Delivery) -> None:
        """Some wait for their key, or its rate: no call was made for them, and they come again."""
        failed = self.fails(one) if self.random.random() < 0.5 else []
        left = [offset for offset in one.offsets if offset not in failed]
        if left:
            self.wait(one, self.random.sample(left, self.random.randint(1, len(left))))

    def wait(self, one: Delivery, offsets: Iterable[int]) -> None:
        one.state = State.RETRY
        self.waits[place_of(one)] = set(offsets)

    def come_again(self, one: Delivery) -> Iterable[Delivery]:
        """What waited is a retry still, or had its attempt since, and may wait once more."""
        for offset in self.waits.get(place_of(one), ()):
            if self.random.random() < 0.5:
                self.retries.append(retry(one, offset))
                continue
            assert one.finished_at
            claimed = one.finished_at + self.random.random() * 9 * MINUTE
            later = day.delivery(
                one.group, one.partition, (offset, offset), claimed, day.SECOND, kind=Kind.RETRY
            )
            if self.random.random() < 0.3:
                self.wait(later, [offset])
                self.retries.append(retry(later, offset))
            yield later

    def dies(self, one: Delivery) -> None:
        if len(one.offsets) > 1 and self.random.random() < 0.5:
            self.fails(one)
        one.state, one.error = State.RETRY, "ProcessDied: The process that had it is gone."
        one.progress = self.random.randint(one.first_offset, one.last_offset)

    def gives_back(self, one: Delivery) -> None:
        one.state = State.RELEASED
        one.progress = self.random.randint(one.first_offset, one.last_offset)

    def is_again(self, one: Delivery) -> None:
        one.attempt = 2

    def is_retried(self, one: Delivery) -> None:
        one.kind = Kind.RETRY

    def is_replayed(self, one: Delivery) -> None:
        one.kind = Kind.REPLAY

    def is_skipped(self, one: Delivery) -> None:
        one.state = State.SKIPPED

    def lacks(self, one: Delivery) -> None:
        one.missing = self.random.randint(0, len(one.offsets))

    def passes(self, one: Delivery) -> None:
        if one.group.tags:
            there = Message.objects.filter(
                partition=one.partition, offset__range=(one.first_offset, one.last_offset)
            )
            one.passed = sum(row.tag not in one.group.tags for row in there)

    def letters(self) -> None:
        of_group = {group.topic_id: group for group in ConsumerGroup.objects.all()}
        oldest = Delivery.objects.earliest("claimed_at").claimed_at
        for message in Message.objects.all():
            if self.random.random() < 0.1:
                died = oldest + MINUTE + self.random.random() * (HOURS - 4) * HOUR
                self.letter(of_group[message.partition.topic_id], message, died)

    def letter(self, group: ConsumerGroup, message: Message, died: Any) -> None:
        pk = day.add_letter(group, message, timezone.now()).pk
        name = "shop.errors." + self.random.choice(CLASSES)[:200]
        DeadMessage.objects.filter(pk=pk).update(died_at=died, error_class=name)

    def sampled(self) -> None:
        samples = []
        for group in ConsumerGroup.objects.all():
            at, grain = self.begin, 360
            while at < timezone.now() - 10 * MINUTE:
                known = self.random.random() < 0.8
                samples.append(
                    GroupSample(
                        group=group,
                        minute=at,
                        taken_at=at,
                        grain=grain,
                        behind=self.random.randrange(99) if known else None,
                        open=0,
                        waiting=self.random.randrange(9),
                        dead=self.random.randrange(9),
                        consumers=1,
                        age_seconds=self.random.random() * 99 if known else None,
                    )
                )
                grain = self.random.choice([360, 60, 5, 1])
                at += self.random.randint(1, 90) * MINUTE
        GroupSample.objects.bulk_create(samples)

    def more(self) -> None:
        """What comes, or ends, after the first roll-up: much of it in the past."""
        now = timezone.now()
        for one in Delivery.objects.filter(state=State.START):
            ended = one.claimed_at + self.random.random() * (now - one.claimed_at)
            changes: dict[str, Any] = {"state": State.DONE, "progress": one.last_offset + 1}
            if self.random.random() < 0.5:
                self.wait(one, one.offsets)
                changes["state"] = one.state
                for offset in one.offsets:  # another delivery may have passed it so before
                    RetryMessage.objects.get_or_create(
                        group=one.group, partition=one.partition, offset=offset
                    )
            Delivery.objects.filter(pk=one.pk).update(**changes, finished_at=ended)
        Partition.objects.update(next_offset=MESSAGES)
        Message.objects.filter(offset__gte=MESSAGES - LATER).update(sequenced_at=UtcNow())
        for partition in self.partitions:
            for group in ConsumerGroup.objects.filter(topic=partition.topic_id):
                span = MESSAGES - LATER, MESSAGES - 1
                # It must have ended before the next roll-up begins.
                one = day.delivery(group, partition, span, timezone.now(), day.SECOND / 9999)
                self.random.choice([self.fails, self.dies, self.is_again])(one)
                one.save()
        # Whoever gives a message up counts it in its last delivery, and writes the letter now.
        group, partition = ConsumerGroup.objects.latest("pk"), self.partitions[-1]
        of_place = Delivery.objects.filter(group=group, partition=partition)
        given_up = 0
        for one in of_place.filter(state=State.RETRY).order_by("-pk"):
            messages = Message.objects.filter(partition=partition)
            of_one = messages.filter(offset__range=(one.first_offset, one.last_offset))
            letter = of_one.order_by("offset").first()
            if letter is None or given_up == 3:
                continue
            covers = of_place.filter(
                first_offset__lte=letter.offset, last_offset__gte=letter.offset
            )
            if covers.filter(pk__gt=one.pk).exclude(state=State.START).exists():
                continue
            Delivery.objects.filter(pk=one.pk).update(dead=one.dead + 1)
            self.letter(group, letter, UtcNow())
            given_up += 1
        assert given_up


# -- computed in plain Python ---------------------------------------------------------------------


def hour_of(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def day_of(moment: datetime) -> datetime:
    return hour_of(moment).replace(hour=0)


def place_of(one: Delivery) -> tuple[Any, ...]:
    return one.group_id, one.partition_id, one.first_offset, one.claimed_at


def retry(one: Delivery, offset: int) -> RetryMessage:
    """The row of a message that waits with its attempt unspent."""
    return RetryMessage(
        group=one.group, partition=one.partition, offset=offset, attempt=one.attempt, due_at=None
    )


def errors_of(one: Delivery) -> Counter[str]:
    """How many messages failed with which class of error, or were lost."""
    texts: Counter[str] = Counter()
    for text, offsets in json.loads(one.errors or "{}").items():
        texts[text] += len(offsets)
    texts[one.error] += one.failed + lost(one) - texts.total()
    found: Counter[str] = Counter()
    for text, count in texts.items():
        found[text.partition(":")[0][:255]] += count
    return found


def ended() -> list[Delivery]:
    return list(Delivery.objects.filter(state__in=SETTLED).exclude(finished_at=None))


def traffic() -> Rows:
    found: Rows = {}
    for partition in Partition.objects.all():
        by_minute: dict[datetime, list[Any]] = defaultdict(list)
        for row in Message.objects.filter(partition=partition).order_by("offset"):
            by_minute[day.minute_of(row.sequenced_at)].append(row)
        begins = [0, *(rows[0].offset for rows in list(by_minute.values())[1:])]
        ranges = list(pairwise([*begins, partition.next_offset]))
        for (minute, rows), (first, end) in zip(by_minute.items(), ranges, strict=True):
            found[partition.pk, minute] = (
                *(first, end, len(rows), sum(row.size for row in rows)),
                len({row.key for row in rows} - {None}),
                sum(row.due_at != IMMEDIATE for row in rows),
            )
    return found


def lost(one: Delivery) -> int:
    taken = one.state == State.RETRY and one.error.startswith("ProcessDied")
    return one.last_offset + 1 - one.progress if taken else 0


def consumption(made: HostileDay) -> Rows:
    found: dict[Any, list[float]] = defaultdict(lambda: [0.0] * 10)
    for one in ended():
        assert one.finished_at
        took = (one.finished_at - one.claimed_at).total_seconds()
        done = one.progress - one.first_offset - one.failed - one.missing - one.passed
        done -= len(made.waits.get(place_of(one), ()))
        again = one.kind == Kind.RETRY or one.attempt > 1
        figures = (
            *(1, max(0, done), one.failed, int(again and one.state != State.RELEASED)),
            *(one.dead, lost(one), one.missing, one.passed),
            took,
        )
        place = one.group_id, day.minute_of(one.finished_at), one.client_id, one.thread
        *sums, longest = found[place]
        sums = [a + b for a, b in zip(sums, figures, strict=True)]
        found[place] = [*sums, max(longest, took)]
    return {place: tuple(figures) for place, figures in found.items()}


def errors() -> Rows:
    failed: Counter[Any] = Counter()
    dead: Counter[Any] = Counter()
    for one in ended():
        assert one.finished_at
        for name, count in errors_of(one).items():
            failed[one.group_id, day.minute_of(one.finished_at), name] += count
    for letter in DeadMessage.objects.all():
        name = letter.error_class.rpartition(".")[2][:255]
        dead[letter.group_id, day.minute_of(letter.died_at), name] += 1
    failed += Counter()  # leaves out what is 0
    return {place: (failed[place], dead[place]) for place in failed.keys() | dead.keys()}


def durations(made: HostileDay) -> dict[Any, list[float]]:
    """(group, minute, leg): the times of all first attempts."""
    log = {(row.partition_id, row.offset): row for row in Message.objects.all()}
    found: dict[Any, list[float]] = defaultdict(list)
    for one in ended():
        if one.kind != Kind.NEW or one.attempt != 1:
            continue
        assert one.finished_at
        for offset in range(one.first_offset, one.progress):
            row = log.get((one.partition_id, offset))
            if row is None or (one.passed and row.tag not in (one.group.tags or [row.tag])):
                continue
            if offset in made.waits.get(place_of(one), ()):
                continue
            assert row.sequenced_at
            legs = {
                "claimed": one.claimed_at - row.sequenced_at,
                "done": one.finished_at - one.claimed_at,
            }
            if row.due_at == IMMEDIATE:
                legs["sequenced"] = row.sequenced_at - row.created_at
                legs["total"] = one.finished_at - row.created_at
            for leg, took in legs.items():
                place = one.group_id, day.minute_of(one.finished_at), leg
                found[place].append(took.total_seconds())
    return found


def percentile(values: list[float], share: float) -> float:
    at = (len(values) - 1) * share
    low, high = values[math.floor(at)], values[math.ceil(at)]
    return low + (high - low) * (at - math.floor(at))


def histogram(values: Iterable[float]) -> str:
    """Buckets of which each ends 1.05 / 0.95 times as far as the one before."""
    growth = math.log(1.05 / 0.95)
    counts = Counter(
        max(0, math.ceil(math.log(max(one, 0.001) / 0.001) / growth)) for one in values
    )
    return " ".join(f"{number}:{counts[number]}" for number in sorted(counts))


def latencies(made: HostileDay) -> Rows:
    return {
        place: (
            *(len(took), sum(took) / len(took)),
            *(percentile(sorted(took), share) for share in (0.5, 0.95, 0.99)),
            *(max(took), histogram(took)),
        )
        for place, took in durations(made).items()
    }


def hot_keys() -> Rows:
    counts: dict[Any, Counter[Any]] = defaultdict(Counter)
    sizes: Counter[Any] = Counter()
    for row in Message.objects.select_related("partition"):
        place = row.partition.topic_id, hour_of(row.sequenced_at)
        counts[place][row.key] += 1
        sizes[*place, row.key] += row.size
    found: Rows = {}
    for place, of_hour in counts.items():
        keyed = [(key, count) for key, count in of_hour.items() if key is not None]
        ranked = sorted(keyed, key=lambda one: (-one[1], one[0].encode()))
        for number, (key, count) in enumerate(ranked, 1):
            share = count / of_hour.total()
            found[*place, number] = key, count, sizes[*place, key], share, of_hour.total()
    return found


def added_up(
    minutes: Rows, place: Callable[[Any], tuple[Any, ...]], figures: Callable[[Any], Any]
) -> Rows:
    """Sums of hours and days."""
    found: dict[Any, list[float]] = {}
    for key, row in minutes.items():
        for grain, start in ((60, hour_of(key[1])), (1440, day_of(key[1]))):
            whole = grain, start, *place(key)
            before = found.get(whole, [0.0] * len(figures(row)))
            found[whole] = [a + b for a, b in zip(before, figures(row), strict=True)]
    return {key: tuple(sums) for key, sums in found.items()}


def consumption_levels(minutes: Rows) -> Rows:
    place = lambda key: (key[0], key[2], key[3])  # noqa: E731
    sums = added_up(minutes, place, lambda row: row[:-1])
    longest: dict[Any, float] = defaultdict(float)
    for key, row in minutes.items():
        for whole in ((60, hour_of(key[1])), (1440, day_of(key[1]))):
            longest[*whole, *place(key)] = max(longest[*whole, *place(key)], row[-1])
    return {key: (*row, longest[key]) for key, row in sums.items()}


def latency_levels(made: HostileDay) -> Rows:
    found: dict[Any, list[float]] = defaultdict(list)
    for (group, minute, leg), took in durations(made).items():
        found[60, hour_of(minute), group, leg] += took
        found[1440, day_of(minute), group, leg] += took
    return {
        place: (len(took), sum(took) / len(took), max(took), histogram(took))
        for place, took in found.items()
    }


def backlogs() -> Rows:
    found: dict[Any, list[GroupSample]] = defaultdict(list)
    for one in GroupSample.objects.all():
        found[60, hour_of(one.minute), one.group_id].append(one)
        found[1440, day_of(one.minute), one.group_id].append(one)
    return {
        place: (
            len(samples),
            max((one.behind for one in samples if one.behind is not None), default=None),
            min((one.behind for one in samples if one.behind is not None), default=None),
            max(one.waiting for one in samples),
            max(one.dead for one in samples),
            max((one.age_seconds for one in samples if one.age_seconds is not None), default=None),
        )
        for place, samples in found.items()
    }


def expected(made: HostileDay) -> dict[str, Rows]:
    of_traffic, of_consumption, of_errors = traffic(), consumption(made), errors()
    return {
        "Traffic": of_traffic,
        "Consumption": of_consumption,
        "ErrorClass": of_errors,
        "Latency": latencies(made),
        "HotKey": hot_keys(),
        "TrafficLevel": added_up(
            of_traffic, lambda key: (key[0],), lambda row: (row[2], row[3], row[5])
        ),
        "ConsumptionLevel": consumption_levels(of_consumption),
        "ErrorLevel": added_up(of_errors, lambda key: (key[0], key[2]), lambda row: row),
        "LatencyLevel": latency_levels(made),
        "BacklogLevel": backlogs(),
    }


# -- what the tables have -------------------------------------------------------------------------

SUMS = ("deliveries", "consumed", "failed", "retried", "dead", "lost", "missing", "passed")
TIMES = ("busy_seconds", "longest_seconds")
TABLES: dict[Any, tuple[tuple[str, ...], tuple[str, ...]]] = {
    Traffic: (
        ("partition_id", "minute"),
        ("first_offset", "end_offset", "messages", "bytes", "keys", "delayed"),
    ),
    Consumption: (("group_id", "minute", "client_id", "thread"), (*SUMS, *TIMES)),
    ErrorClass: (("group_id", "minute", "error_class"), ("failed", "dead")),
    Latency: (
        ("group_id", "minute", "leg"),
        ("messages", "mean", "p50", "p95", "p99", "worst", "histogram"),
    ),
    HotKey: (("topic_id", "hour", "place"), ("key", "messages", "bytes", "share", "total")),
    TrafficLevel: (("grain", "start", "partition_id"), ("messages", "bytes", "delayed")),
    ConsumptionLevel: (
        ("grain", "start", "group_id", "client_id", "thread"),
        (*SUMS, *TIMES),
    ),
    ErrorLevel: (("grain", "start", "group_id", "error_class"), ("failed", "dead")),
    LatencyLevel: (
        ("grain", "start", "group_id", "leg"),
        ("messages", "mean", "worst", "histogram"),
    ),
    BacklogLevel: (
        ("grain", "start", "group_id"),
        ("samples", "behind", "least", "waiting", "dead", "age_seconds"),
    ),
}


def assert_all_is_as_expected(made: HostileDay) -> None:
    whole = expected(made)
    assert whole.keys() == {model.__name__ for model in TABLES}
    for model, (key, figures) in TABLES.items():
        rows: Rows = {
            tuple(row[name] for name in key): tuple(row[name] for name in figures)
            for row in model.objects.values(*key, *figures)
        }
        assert model.objects.count() == len(rows), model
        by_hand = whole[model.__name__]
        assert by_hand, model
        assert rows.keys() == by_hand.keys(), model
        for place, row in by_hand.items():
            for name, mine, seen in zip(figures, row, rows[place], strict=True):
                same = pytest.approx(mine, rel=1e-9, abs=1e-6) if isinstance(mine, float) else mine
                assert seen == same, (model, place, name)


@pytest.mark.timeout(900)
def test_every_row_of_every_roll_up_is_that_of_a_second_computation(
    roll: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparkjobs.jobs import consumption as job
    from sparkjobs.jobs import traffic as of_traffic

    # Several windows, of which each begins in the midst of something.
    monkeypatch.setattr(job, "LONGEST", timedelta(hours=12))
    monkeypatch.setattr(of_traffic, "WINDOW_MESSAGES", 250)
    made = HostileDay(seed=26)
    roll()
    made.more()
    roll()
    assert_all_is_as_expected(made)
