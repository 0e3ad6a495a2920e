"""Measures a server under load: writer processes and a consumer process, on a topic of its own.

What is counted is counted in the tables. A message is missing if the log has it and no handler of
a group was called with it, and repeated if a handler was called with it more than once.
"""

from __future__ import annotations

import os
import random
import signal
import string
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from statistics import quantiles
from threading import Thread
from typing import Any

from django.db import connections
from django.db.models import F, Sum

from streams.api import ReceivedMessage
from streams.consume.registry import consumer, registrations
from streams.database.retrying import retrying
from streams.errors import StreamsError, describe
from streams.log.lag import lags
from streams.models import Consumer, ConsumerGroup, Message, Partition, StressRun, Topic, UtcNow
from streams.observe.mysql_server import Server
from streams.operate.topic_deletion import TopicDeletion
from streams.operate.topics import create
from streams.process.fleet import Fleet
from streams.produce.send import send

# Without fork each process would have to find the host's settings and load all its apps again.
PROCESSES = get_context("fork")
READY_SECONDS = 60.0
END_SECONDS = 60.0
# The run ends when the groups have not come forward for this long.
STALLED_SECONDS = 60.0
# When a run that was asked for over HTTP stops waiting for its group. LONGEST holds this and the
# deletion of the topic, so that no other run begins meanwhile.
RUN_SECONDS = 180.0
LOOK_SECONDS = 0.2
PARENT_LOOK_SECONDS = 1.0
PERCENTILES = (50, 95, 99)
# Counters of the server: how often a transaction waited for a row lock, and for how long in all.
LOCK_WAITS = "Innodb_row_lock_waits"
LOCK_MILLISECONDS = "Innodb_row_lock_time"


@dataclass(frozen=True)
class Load:
    """What is sent: at most ``messages``, for at most ``seconds``, whichever ends first."""

    topic: str
    messages: int | None
    seconds: float | None
    size: int  # bytes of each body
    writers: int  # processes
    rate: float | None  # messages a second of all writers together; None: as fast as they can
    groups: int
    group: str = ""  # the name of the only group

    @property
    def names(self) -> list[str]:
        """Return the names of the groups."""
        return [self.group or f"{self.topic}.{number}" for number in range(self.groups)]


@dataclass
class StressResult:
    """What one run has counted and measured. Times are in seconds, but for ``ms``."""

    accepted: int = 0  # sends that returned
    committed: int = 0
    distinct_ids: int = 0  # rows of the messages
    sequenced: int = 0
    finished: dict[str, int] = field(default_factory=dict)  # by group: as the tables have it
    consumed: dict[str, int] = field(default_factory=dict)  # by group: different messages
    missing: dict[str, int] = field(default_factory=dict)
    repeated: dict[str, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)  # by class, of sends
    sending_seconds: float = 0.0
    consuming_seconds: float = 0.0  # from the first send until every group has finished
    send_ms: dict[str, float] = field(default_factory=dict)
    delivery_ms: dict[str, float] = field(default_factory=dict)  # from before send() to the handler
    processor_seconds: float = 0.0  # of the writers and the consumer, not of the server
    row_lock_waits: int | None = None
    row_lock_wait_seconds: float | None = None

    @property
    def sound(self) -> bool:
        """Whether each accepted message was committed, and came once to a handler or more often."""
        lost = self.accepted > self.committed or self.committed > self.sequenced
        return not lost and not any(self.missing.values())


def delete(topic: str, using: str) -> None:
    """Delete the topic of a run with all that the run has written; nothing if there is none."""
    row = retrying(Topic.objects.using(using).filter(name=topic).first, using)
    if row is not None:
        removal = TopicDeletion(row, using, force=True)
        removal.close()
        removal.wait()
        removal.finish()


def carry_out(pk: int, using: str) -> None:
    """Do the run with this id, note what it has found, and delete its topic."""
    rows = StressRun.objects.using(using).filter(pk=pk, finished_at=None)
    run = rows.first()
    if run is None:
        return
    load = Load(**run.load)
    try:
        create(load.topic, 1, using)
    except StreamsError as error:  # such as a topic that is not of this run
        rows.update(error=describe(error), finished_at=UtcNow())
        return
    try:
        try:
            with ended_by_signals():
                stress = Stress(load, using, lambda left: None, RUN_SECONDS)
                rows.update(result=asdict(stress.run()))
        finally:
            delete(load.topic, using)
    except BaseException as error:
        text = describe(error)  # the connection may be what has failed
        retrying(lambda: rows.update(error=text, finished_at=UtcNow()), using)
        if not isinstance(error, ConsumerEnded | KeyboardInterrupt):
            raise
    else:
        rows.update(finished_at=UtcNow())


class ConsumerEnded(Exception):
    """The consumer process has ended by itself: then nothing is known of the groups."""


class Stress:
    """The run of one load on a topic of its own, which exists and is empty."""

    def __init__(
        self, load: Load, using: str, say: Callable[[str], None], seconds: float | None = None
    ) -> None:
        """Stop waiting for the groups after ``seconds``; None: no limit."""
        self._load = load
        self._ends = None if seconds is None else time.monotonic() + seconds
        self._using = using
        self._say = say
        self._children: list[Any] = []

    def run(self) -> StressResult:
        """Send, consume and count; raises ConsumerEnded."""
        result = StressResult()
        connections.close_all()  # a connection must not be shared with a child
        locks = self._locks()
        used = _processor_seconds()
        try:
            readings = self._start(_consume) if self._load.groups else None
            self._wait_until_ready()
            began = time.monotonic()
            pipes = [self._start(_write, number) for number in range(self._load.writers)]
            delays = array("d")
            errors: Counter[str] = Counter()
            for pipe in pipes:
                try:
                    took, failed = pipe.recv()
                except EOFError:  # it was killed; what it has sent is in the tables
                    errors["killed"] += 1
                else:
                    delays.extend(took)
                    errors.update(failed)
            result.accepted = len(delays)
            result.sending_seconds = time.monotonic() - began
            result.errors = dict(errors)
            result.send_ms = _percentiles(delays)
            self._wait_until_finished()
            result.consuming_seconds = time.monotonic() - began
            self._count(result)
            if readings is not None:
                self._children[0].terminate()
                try:
                    seen, waits = readings.recv()
                except EOFError:
                    raise ConsumerEnded from None
                result.delivery_ms = _percentiles(waits)
                _compare(result, seen)
            for child in self._children:
                child.join(END_SECONDS)
        finally:
            self._end()
        result.processor_seconds = round(_processor_seconds() - used, 3)
        if locks is not None and (after := self._locks()) is not None:
            result.row_lock_waits = after[0] - locks[0]
            result.row_lock_wait_seconds = (after[1] - locks[1]) / 1000
        return result

    # -- children --

    def _start(self, work: Callable[..., Any], *arguments: Any) -> Connection:
        connections.close_all()
        ours, theirs = Pipe(duplex=False)
        child = PROCESSES.Process(
            target=_child, args=(theirs, work, self._load, self._using, *arguments)
        )
        child.start()
        theirs.close()
        self._children.append(child)
        return ours

    def _end(self) -> None:
        for child in self._children:
            if child.is_alive():
                child.terminate()
        for child in self._children:
            child.join(END_SECONDS)
            if child.is_alive():
                child.kill()
                child.join()

    def _wait_until_ready(self) -> None:
        live = Consumer.objects.using(self._using).live().filter(group__topic__name=self._topic)
        limit = time.monotonic() + READY_SECONDS
        while live.count() < self._load.groups:
            if not self._children[0].is_alive() or time.monotonic() > limit:
                raise ConsumerEnded
            time.sleep(LOOK_SECONDS)

    def _wait_until_finished(self) -> None:
        """Wait until nothing is left to do, or the groups no longer make progress."""
        known, since = -1, time.monotonic()
        while time.monotonic() - since < STALLED_SECONDS and not self._is_over():
            left = self._left()
            if not left or not self._load.groups or not self._children[0].is_alive():
                return
            if left != known:
                known, since = left, time.monotonic()
                self._say(str(left))
            time.sleep(LOOK_SECONDS)

    def _is_over(self) -> bool:
        return self._ends is not None and time.monotonic() > self._ends

    # -- what the tables say --

    def _left(self) -> int:
        """Return how many messages are not handled yet; 0 only if there are none."""
        # First the inbox, then the log: a message goes from there to here, so none is overlooked.
        waiting = self._inbox()
        groups = ConsumerGroup.objects.using(self._using).filter(topic__name=self._topic)
        found = lags(groups.select_related("topic"), self._using)
        return waiting + sum(one.unfinished for one in found)

    @property
    def _topic(self) -> str:
        return self._load.topic

    def _partitions(self) -> Any:
        return Partition.objects.using(self._using).filter(topic__name=self._topic)

    def _inbox(self) -> int:
        ids = list(self._partitions().values_list("pk", flat=True))
        return Message.objects.using(self._using).inbox().filter(partition__in=ids).count()

    def _count(self, result: StressResult) -> None:
        total = self._partitions().aggregate(n=Sum(F("next_offset") - F("first_offset")))["n"]
        result.sequenced = int(total or 0)
        result.committed = result.sequenced + self._inbox()
        ids = list(self._partitions().values_list("pk", flat=True))
        result.distinct_ids = Message.objects.using(self._using).filter(partition__in=ids).count()
        groups = ConsumerGroup.objects.using(self._using).filter(topic__name=self._topic)
        for lag in lags(groups.select_related("topic"), self._using):
            result.finished[lag.group.name] = lag.done or 0

    def _locks(self) -> tuple[int, int] | None:
        if connections[self._using].vendor != "mysql":
            return None
        server = Server(self._using)
        return server.status(LOCK_WAITS) or 0, server.status(LOCK_MILLISECONDS) or 0


def _compare(result: StressResult, seen: dict[str, Counter[tuple[int, int]]]) -> None:
    for group, calls in seen.items():
        result.consumed[group] = len(calls)
        result.missing[group] = result.sequenced - len(calls)
        result.repeated[group] = sum(calls.values()) - len(calls)


def _child(pipe: Connection, work: Callable[..., Any], load: Load, *arguments: Any) -> None:
    """Run a child to its end; a child whose parent was killed ends, too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # not the parent's clean-up
    Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    pipe.send(work(load, *arguments))
    connections.close_all()


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def _write(load: Load, using: str, number: int) -> tuple[array[float], dict[str, int]]:
    """Send every ``writers``-th message; return the time of each, and what failed."""
    filling = "".join(random.choices(string.ascii_letters, k=max(0, load.size - 20)))  # noqa: S311
    errors: Counter[str] = Counter()
    delays = array("d")
    connections[using].ensure_connection()
    began = time.monotonic()
    at = number
    while load.messages is None or at < load.messages:
        due = began + at / load.rate if load.rate else time.monotonic()
        if load.seconds is not None and max(due, time.monotonic()) >= began + load.seconds:
            break
        time.sleep(max(0.0, due - time.monotonic()))
        start = time.time()
        try:
            send(load.topic, f"{start:<20.6f}{filling}"[: max(20, load.size)], using=using)
        except Exception as error:  # noqa: BLE001 - counted by class, and shown
            errors[type(error).__name__] += 1
        else:
            delays.append(time.time() - start)
        at += load.writers
    return delays, dict(errors)


def _consume(load: Load, using: str) -> tuple[dict[str, Counter[tuple[int, int]]], array[float]]:
    """Run all groups until SIGTERM; return the calls for each message, and the time to each."""
    waits = array("d")
    seen: dict[str, Counter[tuple[int, int]]] = {}

    def register(group: str) -> None:
        calls: Counter[tuple[int, int]] = Counter()
        seen[group] = calls

        @consumer(load.topic, group=group)
        def note(message: ReceivedMessage) -> None:
            waits.append(time.time() - float(message.body[:20]))
            calls[message.partition, message.offset] += 1

    for name in load.names:
        register(name)
    Fleet({using: list(registrations([load.topic]))}).run()
    return seen, waits


def _percentiles(seconds: array[float]) -> dict[str, float]:
    """Return milliseconds; of a single value, that one."""
    if not seconds:
        return {}
    cuts = quantiles([*seconds, seconds[0]], n=100, method="inclusive")
    return {f"p{share}": round(cuts[share - 1] * 1000, 3) for share in PERCENTILES}


def _processor_seconds() -> float:
    times = os.times()
    return times.children_user + times.children_system


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM end the block like Ctrl-C, so that its clean-up runs."""

    def end(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
