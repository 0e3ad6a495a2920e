"""Reads what is for processes and not for tasks: commands, replies, events, results by message.

All of it is one topic that each process reads by offset, without a claim. A process keeps what is
for the queues that it has declared, and leaves the rest; so these queues end with their process.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from streams.celery.envelope import Payload, is_too_old, payload_of
from streams.celery.naming import Naming
from streams.conf import FRESH_SECONDS, MAX_BATCH
from streams.database.elsewhere import elsewhere
from streams.database.remembered import Fresh
from streams.database.retrying import retrying
from streams.database.transactions import can_commit_apart, in_transaction
from streams.deliver.due import Due
from streams.log import ends
from streams.log.bodies import StoredMessage, stored_messages
from streams.log.topics import TopicInfo, resolve
from streams.logs import event
from streams.models import Message, Partition, Topic
from streams.produce.send import send

logger = logging.getLogger("streams.celery")

# What is older has been read, or nobody waits for it any more.
RETENTION_SECONDS = 3600
FOR_EVER = 0
# A queue that nobody empties keeps its newest messages.
MOST = 10_000


class Binding(NamedTuple):
    """A queue of tasks that is bound to an exchange of this type by a key."""

    exchange: str
    type: str
    key: str
    queue: str


def opened_topic(name: str, using: str, retention: int) -> TopicInfo:
    """Return a topic of the broker itself; a new one keeps its messages as long as is needed."""
    info = resolve(name, using, create=True)
    new = Topic.objects.using(using).filter(pk=info.id, retention_seconds=None)
    retrying(lambda: new.update(retention_seconds=retention), using)
    return info


def copy_of(payload: Payload) -> Payload:
    """Return the message for one queue: each gives it a tag of its own."""
    return {**payload, "properties": {**payload["properties"]}}


class Tail:
    """The end of the topic of the processes, read as it grows."""

    def __init__(self, topic: str, using: str) -> None:
        self._topic, self._using = topic, using
        self._partition = 0
        self.position: int | None = None

    @property
    def partition(self) -> int:
        """The id of its partition; the topic is made if it is missing."""
        if not self._partition:
            self.open()
        return self._partition

    def open(self) -> None:
        """Make the topic if it is missing, also if it was deleted while it was read."""
        (partition, _number), *_ = opened_topic(
            self._topic, self._using, RETENTION_SECONDS
        ).partitions
        if self._partition not in (0, partition):
            self.position = 0
        self._partition = partition

    def begin_at_end(self) -> None:
        """Read from now on, unless it is read already."""
        if self.position is None:
            self.position = self._end()

    def _end(self) -> int:
        rows = Partition.objects.using(self._using).filter(pk=self.partition)
        end = retrying(rows.values_list("next_offset", flat=True).first, self._using)
        if end is None:  # the topic was deleted; the next use of `partition` makes it again
            self._partition = 0
        return int(end or 0)

    def end_in(self, due: Due) -> int | None:
        """Return where the log ends; None if the look does not know its partition."""
        looked = due.logs.get(self._partition)
        if looked is None:
            return None
        # What was sequenced since the look is only in `ends`.
        seen = ends.end(self._partition, self._using)
        return max(looked.offset, seen.offset if seen else 0)

    def read(self, end: int | None = None) -> list[Any]:
        """Return what has come since the last time."""
        start, end = self.position or 0, self._end() if end is None else end
        found: list[Any] = []
        while start < end:
            stop = min(end, start + MAX_BATCH)
            found += stored_messages(self.partition, start, stop, self._using)
            start = stop
        self.position = end  # also if the log was rewound; after an error all is read again
        return found


# A message with what it was read from: it may become too old in a mailbox.
Post = tuple[Payload, StoredMessage]


@dataclass
class Mailbox:
    """A queue of this process: what it is bound to, and what has come for it."""

    name: str
    messages: deque[Post] = field(default_factory=lambda: deque(maxlen=MOST))
    # Exchanges with their types, keys, and patterns of the keys of a topic exchange.
    bindings: set[tuple[str, str, str, str | None]] = field(default_factory=set)
    consumed: bool = False

    def next(self) -> Post | None:
        """Return the next message, or None, and leave out those that have become too old."""
        while self.messages:
            payload, row = self.messages.popleft()
            if not is_too_old(row, payload):
                return payload, row
        return None

    def put_back(self, post: Post) -> None:
        payload, row = post
        again = copy_of(payload)
        info = again["properties"]["delivery_info"]
        again["properties"]["delivery_info"] = {**info, "redelivered": True}
        self.messages.appendleft((again, row))

    def takes(self, exchange: str, key: str) -> bool:
        if not exchange:
            return key == self.name
        return any(
            exchange == bound
            and (kind == "fanout" or key == own or bool(pattern and re.match(pattern, key)))
            for bound, kind, own, pattern in self.bindings
        )


class Control:
    """The queues of this process, and what is read for them."""

    def __init__(self, naming: Naming) -> None:
        self._naming = naming
        self._lock = threading.Lock()
        self.tail = Tail(naming.control, naming.using)
        self.boxes: dict[str, Mailbox] = {}

    def declare(self, queue: str) -> Mailbox:
        with self._lock:
            return self.boxes.setdefault(queue, Mailbox(queue))

    def delete(self, queue: str) -> None:
        with self._lock:
            self.boxes.pop(queue, None)

    def read(self, due: Due) -> bool:
        """Put what has come into the queues; return whether anything was for one that is read."""
        if not self.boxes:
            return False
        self.tail.begin_at_end()
        found = False
        for row in self.tail.read(self.tail.end_in(due)):
            try:
                payload = payload_of(row)
            except Exception:  # somebody has sent what is not of kombu
                logger.warning(
                    "%s is left out: it cannot be read",
                    row,
                    exc_info=True,
                    extra=event("celery.dropped"),
                )
                continue
            info = payload["properties"]["delivery_info"]
            place = info.get("exchange") or "", info.get("routing_key") or ""
            for box in list(self.boxes.values()):
                if box.takes(*place):
                    box.messages.append((copy_of(payload), row))
                    found = found or box.consumed
        return found


# By alias and topic: the bindings as they were read last. Else each message to an exchange would
# read them.
_read: Fresh[tuple[str, str], Mapping[Binding, bool]] = Fresh()
# A header more of what was removed: processes that have it in their routing tables drop it. For
# want of a row they do not, so none is dropped when the messages of a project are lost.
REMOVED = "removed"


class Bindings:
    """Which queues of tasks are bound to which exchanges, also as other processes have said."""

    def __init__(self, naming: Naming) -> None:
        self._naming = naming

    def look(self, *, again: bool = False) -> Mapping[Binding, bool]:
        """Return all that are committed: True; False of those that were removed.

        They were read at most FRESH_SECONDS ago; with ``again`` just now.
        """
        using = self._naming.using
        place = using, self._naming.bindings
        found = None if again else _read.fresh(place)
        if found is None:
            until = time.monotonic() + FRESH_SECONDS
            # A transaction may not see what others have said, and may have failed.
            found = elsewhere(using, self._all) if can_commit_apart(using) else self._all()
            _read.keep(place, found, until, using)
        return found

    def _all(self) -> Mapping[Binding, bool]:
        # What was said again after it was removed comes last.
        return dict(sorted((one, REMOVED not in headers) for _pk, headers, one in self._rows()))

    def _rows(self) -> Iterator[tuple[int, dict[str, str], Binding]]:
        using = self._naming.using
        # It writes nothing, not even a new topic: the caller's transaction may be open.
        rows = Message.objects.using(using).filter(partition__topic__name=self._naming.bindings)
        for pk, headers in retrying(list, using, rows.values_list("pk", "headers")):
            # There may be more headers, such as those of tracing.
            if headers and headers.keys() >= set(Binding._fields):
                yield pk, headers, Binding(*(headers[name] for name in Binding._fields))

    def has(self, exchange: str) -> bool:
        """Tell whether a queue is bound to the exchange by now."""
        found = self.look(again=True)
        return any(bound for one, bound in found.items() if one.exchange == exchange)

    def add(self, binding: Binding) -> None:
        """Let others know of a binding, also if the open transaction is rolled back.

        On SQLite it is not said in a transaction. A worker, which has none open, says the same.
        """
        using = self._naming.using
        if can_commit_apart(using):
            elsewhere(using, partial(self._add, binding))
        elif not in_transaction(using):
            self._add(binding)

    def _add(self, binding: Binding) -> None:
        using = self._naming.using
        if self.look(again=True).get(binding):
            return
        opened_topic(self._naming.bindings, using, FOR_EVER)
        send(self._naming.bindings, headers=binding._asdict(), using=using)
        _read.pop((using, self._naming.bindings), None)

    def remove(self, **of: str) -> None:
        """Let all processes drop the bindings that have these fields.

        It stands also if the open transaction is rolled back, except on SQLite.
        """
        using = self._naming.using
        work = partial(retrying, self._remove, using, of)
        if can_commit_apart(using):
            elsewhere(using, work)
        else:
            work()
        _read.pop((using, self._naming.bindings), None)

    def _remove(self, of: dict[str, str]) -> None:
        for pk, headers, one in self._rows():
            if one._asdict().items() >= of.items():
                row = Message.objects.using(self._naming.using).filter(pk=pk)
                row.update(headers={**headers, REMOVED: "yes"})
