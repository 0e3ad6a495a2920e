"""Lists who has sent lately, and from where, as the newest messages of the logs say.

Producers do not register: they are known by the messages that they have sent. So a list costs
nothing until somebody looks, and a producer that sends nothing is not on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import Count, Max

from streams.database.clock import instant
from streams.log.counting import read_each
from streams.log.foreign import own_rows
from streams.models import Message, Partition

LATELY = timedelta(minutes=15)
# In messages: the newest of a partition, and of all partitions together; then in partitions.
NEWEST, NEWEST_IN_ALL = 1_000, 10_000
PARTITIONS = 200


@dataclass(frozen=True)
class Producer:
    """A process that has sent; of HTTP, a token that was used from an address."""

    host: str
    process: str  # its pid, or ``http:`` and the beginning of the token; "" if unknown
    threads: int
    topics: list[str]
    messages: int
    last_sent_at: datetime

    @property
    def is_process(self) -> bool:
        return self.process.isdecimal()


@dataclass(frozen=True)
class Producers:
    """Who has sent in the last LATELY, of the ``newest`` messages of each partition."""

    newest: int
    listed: list[Producer]


def producers(using: str, now: datetime, topic: int | None = None) -> Producers:
    """Return who has sent to the topic, or to any, in the last LATELY: the newest send first.

    Two statements. They read at most NEWEST_IN_ALL messages, of the PARTITIONS that have grown
    last. A delayed message counts from when it is due on, and only if it was sent lately.
    """
    since = now - LATELY
    grown = own_rows(Partition.objects.using(using).filter(last_sequenced_at__gte=since), using)
    if topic is not None:
        grown = grown.filter(topic=topic)
    columns = ("pk", "next_offset", "topic__name")
    places = list(grown.order_by("-last_sequenced_at").values_list(*columns)[:PARTITIONS])
    newest = min(NEWEST, NEWEST_IN_ALL // max(1, len(places)))
    messages = Message.objects.using(using).filter(created_at__gte=since)
    read = {
        (pk, name): messages.filter(partition=pk, offset__gte=end - newest, offset__lt=end)
        .values_list("producer")
        .annotate(sent=Count("pk"), last=Max("created_at"))
        .order_by()[:newest]
        for pk, end, name in places
    }
    found: dict[tuple[str, str], _Sender] = {}
    for (_pk, name), rows in read_each(read, using).items():
        for producer, sent, last in rows:
            host, process, thread = who_is(producer)
            found.setdefault((host, process), _Sender()).add(thread, name, sent, instant(last))
    listed = [
        Producer(*who, len(one.threads), sorted(one.topics), one.messages, one.last_sent_at)
        for who, one in found.items()
    ]
    return Producers(newest, sorted(listed, key=lambda one: one.last_sent_at, reverse=True))


class _Sender:
    """What the threads of a producer have sent, added up."""

    def __init__(self) -> None:
        self.threads: set[str] = set()
        self.topics: set[str] = set()
        self.messages = 0
        self.last_sent_at = datetime.min.replace(tzinfo=UTC)

    def add(self, thread: str, topic: str, messages: int, last: datetime) -> None:
        self.threads.add(thread)
        self.topics.add(topic)
        self.messages += messages
        self.last_sent_at = max(self.last_sent_at, last)


def who_is(name: str) -> tuple[str, str, str]:
    """Return host, process and thread of a producer or client; "" is what its name does not say.

    It is ``host@pid@thread``, or ``http:token@ip@thread`` of what was sent over HTTP.
    """
    first, _at, rest = name.partition("@")
    second, _at, thread = rest.partition("@")
    return (second, first, thread) if first.startswith("http:") else (first, second, thread)
