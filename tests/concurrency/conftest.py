from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest
from django.db import connections

from streams import Outgoing, runtime_settings, send_many
from streams.deliver.claim import Claimer
from streams.log import topics
from streams.log.sequencer import sequence
from streams.models import ConsumerGroup, Cursor, Delivery, Partition, Topic

MINUTE = timedelta(minutes=1)


@dataclass
class Stream:
    """Make a topic with messages in its log, and one group at their start."""

    topic: Topic
    partition: Partition
    group: ConsumerGroup

    def claimer(self, name: str = "main") -> Claimer:
        return Claimer(self.group, f"10.0.0.1@1@{name}", name, "default")

    def claim(self, name: str = "main", batch: int = 5) -> Delivery | None:
        return self.claimer(name).claim(batch, MINUTE)

    def fill(self, messages: int) -> None:
        send_many([Outgoing(self.topic.name, number) for number in range(messages)])
        sequence("default")


@pytest.fixture
def stream(transactional_db: None) -> Stream:
    topics.forget()
    runtime_settings.forget()
    topic = Topic.objects.create(name="orders")
    partition = topic.partitions.get()
    group = ConsumerGroup.objects.create(topic=topic, name="mail")
    Cursor.objects.create(group=group, partition=partition)
    return Stream(topic, partition, group)


@pytest.fixture(params=["read committed", "repeatable read"])
def isolation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Set the isolation level that the project has chosen for its connections."""
    level = str(request.param)
    options = connections.settings["default"]["OPTIONS"]
    monkeypatch.setitem(options, "isolation_level", level)
    connections["default"].close()  # the next statement connects anew, and so do threads
    return level


@pytest.fixture(autouse=True)
def fresh_connection() -> Iterator[None]:
    """What a test sets for its session ends with it."""
    yield
    connections["default"].close()
