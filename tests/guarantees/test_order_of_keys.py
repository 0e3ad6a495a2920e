"""Each key of a group by key is handled in the order of its offsets, whatever fails or dies.

A story is a random list of events: messages are sent, a process consumes and is killed before a
random statement, time passes, the purge runs, the topic grows. Of each message the handler writes
down when a call of it begins and when it is done. No call may begin before all messages of its key
before it are done; where no process dies unseen, none begins again after one behind it has begun.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streams import Outgoing, ReceivedMessage, Retry, consumer, send_many
from streams.chaos.forks import in_fork
from streams.consume.outcome.dead_letter import redrive
from streams.log.sequencer import sequence
from streams.models import (
    Cursor,
    DeadMessage,
    Delivery,
    HeldKey,
    Message,
    RetryMessage,
    Topic,
)
from streams.observe.audit.walk import audit
from streams.operate.topics import grow
from streams.process.deaths import Deaths
from streams.process.shared.progress_file import NoFile, ProgressFile
from streams.retain.purge import Purge
from streams.steps.sweep import sweep
from streams.testing import advance
from tests.consuming import LONG_AFTER, MINUTE, Process
from tests.faults import Guillotine
from tests.hostapp.models import Handled
from tests.processes import Spawn, wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
    pytest.mark.timeout(400),
]

KEYS = ["a", "b", "c", "d", "e", None]
BEGUN, DONE = "begun", "done"


def note(message: ReceivedMessage, what: str) -> None:
    Handled.objects.create(
        group=message.group,
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        value=what,
    )


def failures(message: ReceivedMessage) -> int:
    """Return how often a message fails: half of them never, the others up to three times.

    One that was redriven is handled.
    """
    letters = DeadMessage.objects.filter(partition__number=message.partition)
    was_redriven = letters.filter(group__name=message.group, offset=message.offset).exists()
    return 0 if was_redriven else max(0, message.body % 7 - 3)


def handle(message: ReceivedMessage) -> None:
    note(message, BEGUN)
    if message.attempt <= failures(message):
        raise Retry(delay=60)
    note(message, DONE)


def handle_batch(messages: Sequence[ReceivedMessage]) -> dict[ReceivedMessage, Exception]:
    """Handle a key no further once it has failed; what is behind counts as done all the same."""
    failed: dict[ReceivedMessage, Exception] = {}
    for message in messages:
        if any(message.key == one.key for one in failed if one.key):
            continue
        note(message, BEGUN)
        if message.attempt <= failures(message):
            failed[message] = Retry(delay=60)
        else:
            note(message, DONE)
    return failed


def register(group: str, *, kind: str, atomic: bool, hold: bool) -> None:
    options: dict[str, Any] = {"ordered": "key", "atomic": atomic, "start": "earliest"}
    # A death spends an attempt, too. Only what is redriven in its order may die.
    options |= {"max_retries": 1, "on_dead": "hold"} if hold else {"max_retries": 1000}
    if kind == "batch":
        consumer("orders", group=group, batch=5, **options)(handle_batch)
    elif kind == "lanes":
        consumer("orders", group=group, lanes=3, **options)(handle)
    else:
        consumer("orders", group=group, **options)(handle)


@dataclass
class Story:
    """Events that follow each other by chance. With ``seen``, a death is noticed on its host."""

    chance: random.Random
    group: str
    seen: bool
    sent: int = 0
    keys: dict[tuple[int, int], str | None] = field(default_factory=dict)  # by place

    def run(self, events: int) -> None:
        self.send()
        Process(self.group)  # the group is there before the first purge
        for _event in range(events):
            self.chance.choices(
                [
                    *(self.send, self.consume, self.die, self.wait),
                    self.purge,
                    self.grow,
                    self.redrive,
                ],
                [4, 4, 4, 3, 1, 0.4, 2],
            )[0]()
        for _round in range(100):
            advance(LONG_AFTER)
            sweep("default")
            self.consume()
            if not (self.redrive() or RetryMessage.objects.exists() or self._is_behind()):
                return
        raise AssertionError(f"{self.group} never comes to an end")

    def _is_behind(self) -> bool:
        return Delivery.objects.open().exists() or Cursor.objects.behind().exists()

    def send(self) -> None:
        count = self.chance.randint(1, 12)
        keys = [self.chance.choice(KEYS) for _ in range(count)]
        bodies = [self.chance.randrange(100) for _ in range(count)]
        send_many(
            [Outgoing("orders", body, key=key) for body, key in zip(bodies, keys, strict=True)]
        )
        self.sent += count
        # Read before a purge: the notes have places only.
        sequence("default")
        log = Message.objects.exclude(offset=None)
        self.keys |= {
            (number, offset): key
            for number, offset, key in log.values_list("partition__number", "offset", "key")
            if offset is not None
        }

    def consume(self) -> None:
        Process(self.group).run_until_idle()

    def die(self) -> None:
        status = in_fork(partial(self._until_killed, self.chance.randint(5, 120)))
        assert status in (0, -9)
        if self.seen:
            Deaths("default").noticed()
            Deaths("default").recover()
        else:
            advance(LONG_AFTER)
            sweep("default")

    def _until_killed(self, point: int) -> None:
        file = ProgressFile("default", 1) if self.seen else NoFile()
        Guillotine(point).install()
        Process(self.group, file=file).run_until_idle()

    def wait(self) -> None:
        advance(MINUTE * self.chance.randint(1, 2))

    def purge(self) -> None:
        Topic.objects.update(retention_count=0)
        Purge("default").run()
        Topic.objects.update(retention_count=None)

    def redrive(self) -> int:
        return sum(map(redrive, DeadMessage.objects.waiting()))

    def grow(self) -> None:
        topic = Topic.objects.get(name="orders")
        grow(topic, topic.partitions.count() + 1, "default")


def calls(story: Story) -> dict[Any, list[tuple[int, str]]]:
    """Return the notes of each key of each partition, in their order."""
    found: dict[Any, list[tuple[int, str]]] = defaultdict(list)
    rows = Handled.objects.filter(group=story.group).order_by("pk")
    for partition, offset, what in rows.values_list("partition", "offset", "value"):
        key = story.keys[partition, offset]
        if key is not None:
            found[partition, key].append((offset, what))
    return found


def assert_in_order(story: Story, *, in_place: bool) -> None:
    for (partition, key), notes in calls(story).items():
        offsets = {at for (n, at), one in story.keys.items() if (n, one) == (partition, key)}
        done: set[int] = set()
        highest = -1
        for offset, what in notes:
            if what == DONE:
                done.add(offset)
                continue
            missing = sorted(before for before in offsets - done if before < offset)
            assert not missing, f"{key}: {offset} has begun before {missing}: {notes}"
            assert not in_place or offset >= highest, f"{key}: {offset} after {highest}: {notes}"
            highest = max(highest, offset)
        assert done == offsets, f"{key}: {sorted(offsets - done)} were never done"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, ems_settings: Any) -> None:
    ems_settings(STATE_DIR=str(tmp_path))


STORIES = int(os.environ.get("EMS_STORIES", "1"))


@pytest.mark.parametrize(
    ("kind", "atomic"),
    [("one", False), ("one", True), ("batch", False), ("batch", True), ("lanes", False)],
)
@pytest.mark.parametrize("seen", [False, True], ids=["unseen", "seen"])
@pytest.mark.parametrize("seed", range(STORIES))
def test_each_key_is_handled_in_the_order_of_its_offsets(
    seed: int, seen: bool, kind: str, atomic: bool
) -> None:
    group = f"g{seed}"
    register(group, kind=kind, atomic=atomic, hold=(kind == "batch") != seen)
    number = seed * 16 + seen * 8 + ["one", "batch", "lanes"].index(kind) * 2 + atomic
    chance = random.Random(number)  # noqa: S311
    story = Story(chance, group, seen)
    story.run(25)
    assert len(story.keys) == story.sent
    assert_in_order(story, in_place=seen and kind != "batch")
    assert not HeldKey.objects.exists()
    assert not RetryMessage.objects.exists()
    assert not DeadMessage.objects.waiting().exists()
    assert not Delivery.objects.open().exists()
    assert not Cursor.objects.exclude(open_delivery=None).exists()
    assert audit("default") == []


CONSUMER = """
import sys
from django.core.management import call_command
from streams import Retry, consumer
from tests.guarantees.test_order_of_keys import BEGUN, DONE, note

@consumer("orders", group="work", ordered="key", start="earliest", max_retries=1000,
          lanes=int(sys.argv[1]))
def handle(message):
    note(message, BEGUN)
    if message.attempt <= message.body % 3:
        raise Retry(delay=0.05)
    note(message, DONE)

call_command("ems_consume", "--group", "work")
"""


@pytest.mark.mysql
@pytest.mark.parametrize(
    ("lanes", "messages"),
    [
        (4, 60),
        *(pytest.param(*more, marks=pytest.mark.exhaustive) for more in ((1, 200), (4, 400))),
    ],
)
def test_with_processes_side_by_side_that_are_killed_each_key_is_handled_in_order(
    spawn: Spawn, lanes: int, messages: int
) -> None:
    """They claim new messages and retries at once, and are killed at whatever they do."""
    chance = random.Random(5)  # noqa: S311
    story = Story(chance, "work", seen=True)
    Topic.objects.create(name="orders")
    grow(Topic.objects.get(), 2, "default")
    while story.sent < messages:
        story.send()
    done = Handled.objects.filter(value=DONE).values("partition", "offset").distinct()
    children = [spawn(CONSUMER, str(lanes)) for _ in range(2)]
    for number in range(1, 1 + messages // 40):
        wait_for(lambda least=30 * number: done.count() >= least, "calls")  # type: ignore[misc]
        victim = chance.randrange(2)
        children[victim].kill()
        children[victim] = spawn(CONSUMER, str(lanes))
    wait_for(lambda: done.count() == story.sent, "the rest", 120)
    wait_for(lambda: not RetryMessage.objects.exists(), "the end of the last calls", 60)
    for child in children:
        child.terminate()
        child.wait()
    assert_in_order(story, in_place=False)
    assert not HeldKey.objects.exists()
    assert audit("default") == []
