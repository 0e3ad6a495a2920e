"""Fetches messages for the channels of a connection, and keeps what the process has in hand.

The threads of a connection that consumes: one fetches, one writes what has ended and renews the
lease, one looks after what others have left. Celery's own threads touch no database for it.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Set
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from django.db import IntegrityError, connections, reset_queries
from django.db.backends.signals import connection_created

from streams.api import Outgoing
from streams.celery import forks
from streams.celery.control import Control
from streams.celery.envelope import Payload, is_too_old, payload_of
from streams.celery.hands import MOST, Hands
from streams.celery.naming import Naming
from streams.celery.supply import Supply, Taken
from streams.conf import MAX_ANY_ORDER, RENEW_SECONDS, settings
from streams.consume.outcome.settle import release
from streams.consume.registry import autodiscover
from streams.database.retrying import PATIENCE, transient
from streams.deliver.due import Places, what_is_due
from streams.deliver.own_cursors import OwnCursors
from streams.deliver.poller import FEW, Poller
from streams.errors import InvalidMessage, LeaseLost, TopicDenied, UnknownTopic
from streams.log import kept_ends
from streams.log.sequencer import BUSY_SECONDS, sequence
from streams.log.topics import resolve
from streams.logs import event
from streams.process.deaths import Deaths
from streams.process.shared.client import Client
from streams.process.shared.connections import KEEPER_PREFIX, limit_keeper
from streams.process.shared.death_lock import DeathLock
from streams.process.shared.progress_file import NoFile, ProgressFile, opened
from streams.produce.send import send_many
from streams.steps.gone_clients import GoneClients
from streams.steps.nightly_purge import purge_if_due
from streams.steps.of_apps import run_steps_of_apps
from streams.steps.sequence import note_sequencing
from streams.steps.sweep import SWEEP_EVERY, sweep, sweep_if_due
from streams.wakeup import EVERY, Listener

logger = logging.getLogger("streams.celery")

# A command to the workers waits for an answer for a second: without Redis they look this often.
LOOK_SECONDS = 0.25
AFTER_ERROR_SECONDS = 1.0
# A thread repeats its work for so long, and then tells that the database is away. A wait for a lock
# of others, KEEPER_LOCK_SECONDS, is shorter.
PATIENCE_SECONDS = 3.0
# Messages are fetched ahead of the pool as far as it handles in so many seconds.
AHEAD_SECONDS = 0.1
MOST_AHEAD = 4 * MAX_ANY_ORDER
# Where the pool has taken and ended nothing for so long, what was fetched ahead is given back.
STANDS_SECONDS = 1.0
# Below so many messages a second, each free place is filled at once.
SLOW_RATE = 50.0
# What ends within so many seconds is written together.
TOGETHER_SECONDS = 0.003
LEAVE_SECONDS = 5.0
LOOK_DEATHS_SECONDS = 1.0
PURGE_SECONDS = 2.0
NEVER_SENT = (InvalidMessage, TopicDenied, UnknownTopic)
# The most of what is to be published that waits for a database that is away.
MOST_OUTGOING = 10_000


@dataclass(eq=False)
class Intake:
    """What one channel takes: from where, how many at once, and what it has not got yet."""

    prefetch: int = 0
    # By queue: its supplies, the most urgent first.
    queues: dict[str, list[Supply]] = field(default_factory=dict)
    buffer: deque[tuple[int, str, Payload]] = field(default_factory=deque)
    # What the channel has: by tag, the id of the task.
    out: dict[int, str] = field(default_factory=dict)
    turn: int = 0
    moved_at: float = field(default_factory=time.monotonic)  # when that has changed

    def in_turn(self) -> Iterator[Supply]:
        """Yield the supplies as they are to be asked: urgent topics first, the queues by turns."""
        self.turn += 1
        queues = list(self.queues.values())
        first = self.turn % max(1, len(queues))
        for rank in range(max(map(len, queues), default=0)):
            for supplies in (*queues[first:], *queues[:first]):
                yield from supplies[rank : rank + 1]

    @property
    def supplies(self) -> list[Supply]:
        # A copy at once: other threads begin and end with a queue.
        return [supply for some in list(self.queues.values()) for supply in some]

    def hand_over(self, tag: int, task: str) -> None:
        self.out[tag] = task
        self.moved_at = time.monotonic()

    def end(self, tag: int) -> None:
        self.out.pop(tag, None)
        self.moved_at = time.monotonic()

    def room(self) -> int:
        return self.prefetch - len(self.out) if self.prefetch else MOST_AHEAD

    @property
    def stands(self) -> bool:
        """Tell whether the channel has no room, and nothing has moved in it for a while."""
        return self.room() <= 0 and time.monotonic() - self.moved_at > STANDS_SECONDS

    def wants(self, rate: float) -> int:
        """Return how many more to fetch; 0 while there are enough for the next moment."""
        if not self.queues:
            return 0
        # The rate falls too slowly: what was given back would be fetched again.
        ahead = 0 if self.stands else min(MOST_AHEAD, int(rate * AHEAD_SECONDS))
        most = min(self.prefetch or MOST_AHEAD, MOST_AHEAD) + ahead
        wanted = self.room() + ahead - len(self.buffer)
        return wanted if wanted >= (1 if rate < SLOW_RATE else max(1, most // 4)) else 0


class Engine:
    """What consumes for one connection. It begins with its first queue, and ends with ``stop``."""

    def __init__(self, naming: Naming, ready: Callable[[], None]) -> None:
        self.naming, self.using = naming, naming.using
        self.control = Control(naming)
        self.intakes: list[Intake] = []
        self.hands: Hands | None = None
        self.client: Client | None = None
        self.rate = 0.0
        self._ready = ready  # tells the channels that there is something for them
        self._pid = os.getpid()
        self._condition = threading.Condition()
        self._woken = self._stopping = self._hungry = False
        self._asked: deque[Callable[[], None]] = deque()
        self._outgoing: deque[Outgoing] = deque(maxlen=MOST_OUTGOING)
        self._file: ProgressFile | NoFile | None = None
        self._threads: list[threading.Thread] = []
        self._poller = Poller(self.using)
        self._listener: Listener | None = None
        self._topics: set[str] = set()
        self._singles: dict[str, list[Supply]] = {}
        self._counted, self._counted_at = 0, time.monotonic()
        self._keep = threading.Condition()
        self._lock: DeathLock | None = None
        self._away = False
        # Whether a look failed, which may have claimed what is not in hand.
        self._unsure = False
        # For which topics something was sent, and when the next whole look is due.
        self._sent_to: set[str] = set()
        self._whole, self._look_at = False, 0.0
        self._again: set[str] = set()  # of these, what others were about to claim
        self._few = True  # the last pass has found few messages
        self._cursors = OwnCursors(self.using)

    @property
    def running(self) -> bool:
        """Tell whether it runs in this process: a child that was forked has no thread of it."""
        return bool(self._threads) and self._pid == os.getpid() and not self._stopping

    @property
    def alive(self) -> bool:
        """Tell whether it has a lease, as far as it knows."""
        return self.client is not None and self.client.alive

    def start(self) -> None:
        if self._threads or self._stopping:
            return
        self._topics.add(self.naming.control)
        connection_created.connect(limit_keeper)
        self._begin("fetch", self._fetch)
        _running.add(self)

    def _begin(self, name: str, run: Callable[[], None]) -> None:
        # Named as keepers are: their connections have short limits.
        thread = threading.Thread(
            target=self._run, args=(run,), name=f"{KEEPER_PREFIX}celery-{name}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _run(self, run: Callable[[], None]) -> None:
        PATIENCE.set(PATIENCE_SECONDS)  # of this thread
        forks.keep(self.using)
        try:
            run()
        except Exception:
            logger.exception("A thread of the broker failed", extra=event("celery.failed"))
        finally:
            forks.leave(self.using)

    def _guarded(self, work: Callable[[], float]) -> float:
        """Do a step; wait while the database is away. Nothing of that reaches kombu."""
        reset_queries()
        try:
            with forks.at_work():
                pause = work()
        except Exception as error:  # whatever it is: without its thread a worker handles nothing
            connections[self.using].close()
            if not transient(error):
                logger.exception("The broker has failed", extra=event("celery.failed"))
            elif not self._away:
                logger.warning(
                    "The broker waits for the database: %s",
                    error,
                    extra=event("database.away", database=self.using),
                )
            self._away = True
            return AFTER_ERROR_SECONDS
        self._away = False
        return pause

    # -- what channels ask for, in any thread --

    def wake(self) -> None:
        """Look now."""
        self._hear(EVERY)

    def _hear(self, topics: Set[str]) -> None:
        """Note that something was sent to ``topics``; EVERY asks for a whole look."""
        self._poller.wake()
        with self._condition:
            self._sent_to.update(topics)
            self._whole = self._whole or not topics
            self._woken = True
            self._condition.notify_all()

    def ask(
        self,
        work: Callable[[], Any],
        patience: float = LEAVE_SECONDS,
        late: Callable[[Any], None] = lambda result: None,
    ) -> Any:
        """Do ``work`` in the thread that fetches; return its result, None if that takes long.

        What has not begun by then is not done; a result that comes later is given to ``late``.
        """
        answer: Future[Any] = Future()

        def do() -> None:
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(work())
                except BaseException as error:
                    answer.set_exception(error)
                    raise

        def came(answer: Future[Any]) -> None:
            if answer.exception() is None:
                late(answer.result())

        self.start()
        self._asked.append(do)
        self.wake()
        if wait([answer], patience).done:
            return None if answer.exception() else answer.result()
        if not answer.cancel():
            answer.add_done_callback(came)
        return None

    def publish(self, message: Outgoing) -> None:
        """Send what is for other processes, soon: its sender does not wait for the database."""
        self._outgoing.append(message)
        self.wake()

    def consume(self, intake: Intake, queue: str) -> None:
        intake.queues[queue] = self._supplies_of(queue)
        self._topics.update(self.naming.topics(queue))
        if intake not in self.intakes:
            self.intakes.append(intake)
        self.start()
        self.wake()

    def cancel(self, intake: Intake, queue: str) -> None:
        """Stop fetching from a queue; what is in the buffer goes back."""
        intake.queues.pop(queue, None)
        kept = []
        with suppress(IndexError):  # another thread has taken the last one
            while intake.buffer:
                tag, name, payload = intake.buffer.popleft()
                if name != queue:
                    kept.append((tag, name, payload))
                else:
                    self.give_back_one(tag)
        intake.buffer.extend(kept)

    def give_back_one(self, tag: int) -> None:
        if self.hands:
            self.hands.give_back_one(tag)
        self._wake_keeper()

    def settled(self, intake: Intake) -> None:
        """Note that a channel has ended a message."""
        self._wake_keeper()
        if self._hungry and intake.wants(self.rate):
            self.wake()

    def begun(self, tags: Iterable[int]) -> None:
        if self.hands:
            self.hands.begin(tags)

    # -- the thread that fetches --

    def _fetch(self) -> None:
        while not self._stopping:
            self._woken = False
            pause = self._guarded(self._step)
            with self._condition:
                self._condition.wait_for(lambda: self._woken or self._stopping, pause)
        if self._listener:
            self._listener.stop()

    def take_one(self, queue: str) -> tuple[int, Payload] | None:
        """Claim one message of a queue that nobody here consumes; only for ``ask``."""
        if self.client is None:
            self._register()
        assert self.client is not None and self.hands is not None  # noqa: S101, PT018
        self.hands.flush()  # what whoever asks has given back is there again
        topics = [resolve(topic, self.using) for topic in self.naming.topics(queue)]
        sequence(self.using, [id_ for topic in topics for id_, _number in topic.partitions])
        for supply in self._singles.setdefault(queue, self._supplies_of(queue)):
            self._join(supply)
            if taken := supply.claim(self.client.client_id, 1):
                for one in self._read(supply, taken):
                    return one
        return None

    def _supplies_of(self, queue: str) -> list[Supply]:
        return [Supply(queue, topic, self.using) for topic in self.naming.topics(queue)]

    def _step(self) -> float:
        """Claim what was sent just now, or look at all; return the pause."""
        with self._condition:
            topics, self._sent_to = self._sent_to | self._again, set()
            whole, self._whole = self._whole, False
        self._again = set()
        # After an error a whole look is due.
        look_at, self._look_at = self._look_at, 0.0
        now = time.monotonic()
        if topics and not whole:
            look_at = min(look_at, now + self._claim_sent(topics))
        if whole or not topics or look_at <= now:
            pause = self.look()
            look_at = time.monotonic() + pause
        self._look_at = look_at
        pause = look_at - time.monotonic()
        return max(0.0, min(pause, BUSY_SECONDS) if self._again else pause)

    def _claim_sent(self, topics: set[str]) -> float:
        """Claim what was sent to ``topics`` just now: it is quicker than a whole look.

        Return in how many seconds a whole look is to follow at the latest: at once for topics of
        others, while much is sent, and if something has failed.
        """
        hands, client = self.hands, self.client
        if hands is None or client is None or not client.alive or self._unsure or not self._few:
            return 0.0
        wanted = {
            supply.registration.topic: (intake, supply, supply.group.pk)
            for intake in list(self.intakes)
            for supply in intake.supplies
            if supply.group is not None
        }
        if not topics <= wanted.keys():
            return 0.0
        self._measure()
        sent_to = [wanted[topic] for topic in topics]
        rows = {
            row[1]: (intake, supply, row)
            for intake, supply, group_id in sent_to
            for row in self._cursors.of(group_id)
        }
        control = self.control.tail.partition
        groups = [group_id for _intake, _supply, group_id in sent_to]
        places = Places(groups, [(0, place) for place in [*rows, control]])
        due = what_is_due(places, self.using)
        if due.groups:
            return 0.0
        # Before the claims: a command that revokes a task is to come before the task.
        if control in due.inbox and sequence(self.using, [control]).busy:
            self._again |= topics
            return math.inf
        news, pauses = self.control.read(due), [math.inf]
        for intake, supply, row in [rows[place] for place in due.inbox - {control}]:
            number = intake.wants(self.rate)
            if not number or hands.full or hands.alone:
                pauses.append(0.0)
                continue
            self._unsure = True
            taken, done = supply.claim_sent(client.client_id, number, row)
            if taken:
                self._have(intake, supply, taken)
            self._unsure = False
            self._few = done.sequenced <= FEW
            news = news or taken is not None
            if done.busy and not done.unsettled:  # whoever is at it may leave something
                self._again.add(supply.registration.topic)
            elif done.goes_on_in is not None or (done.sequenced and supply.more):
                pauses.append(done.goes_on_in or 0.0)
        if news:
            self._ready()
        return min(pauses)

    def look(self) -> float:
        """Look what there is, read what is for this process, and claim; return the pause."""
        if self._listener is None:
            self._listener = Listener(self.using, self._topics, self._hear)
            self._listener.start()
        if self._unsure and self.hands and self.client:
            self.hands.give_back_strays(self.client.client_id)
        self._unsure = True
        while self._asked:
            self._asked.popleft()()
        self._send_outgoing()
        supplies = self._open_supplies()
        look = self._poller.look([supply.group.pk for supply in supplies if supply.group])
        self._few = look.done.sequenced <= FEW
        # Before the claims, as in _claim_sent.
        news = self.control.read(look.due)
        found = self._claim() if supplies else False
        if news or found:
            self._ready()
        told = settings().REDIS is not None
        pause = self._poller.pause(look, woken=found or news, told=told)
        self._unsure = False
        return min(pause, LOOK_SECONDS)

    def _send_outgoing(self) -> None:
        """Send what is for other processes. What can never be sent is dropped, and said."""
        while self._outgoing:
            waiting = [self._outgoing[n] for n in range(min(len(self._outgoing), 200))]
            try:
                send_many(waiting, using=self.using)
            except NEVER_SENT:
                self.control.tail.open()  # it may have been deleted
                for one in waiting:
                    try:
                        send_many([one], using=self.using)
                    except NEVER_SENT as error:
                        logger.warning(
                            "A message for %s is dropped: %s",
                            *(one.topic, error),
                            extra=event("celery.dropped"),
                        )
            for _one in waiting:
                self._outgoing.popleft()

    def _open_supplies(self) -> list[Supply]:
        supplies = [supply for intake in self.intakes for supply in intake.supplies]
        if supplies and self.client is None:
            self._register()
        for supply in supplies:
            self._join(supply)
        return supplies

    def _join(self, supply: Supply) -> None:
        """Be a client of the group of a supply, which is made again if it was deleted."""
        assert self.client is not None  # noqa: S101 - whoever joins has registered
        try:
            self.client.join((supply.group or supply.open()).pk)
        except IntegrityError:
            self.client.join(supply.open().pk)

    def _register(self) -> None:
        if self._file is None:  # an earlier try may have failed after this
            self._file = opened(self.using, MOST)
        client = Client([], self.using, self._file.name)
        client.register()
        self.hands = Hands(self.using, self._file)
        self.client = client
        self._begin("keep", self._keeps)
        self._begin("after", self._looks_after)

    def _claim(self) -> bool:
        """Claim for each channel as much as it wants; return whether anything was claimed."""
        self._measure()
        found, self._hungry = False, False
        for intake in list(self.intakes):
            self._give_back_ahead(intake)
            while wanted := intake.wants(self.rate):
                if not self._claim_once(intake, wanted):
                    break
                found = True
            else:
                self._hungry = True  # there may be more, for which there is no room
        return found

    def _give_back_ahead(self, intake: Intake) -> None:
        """Give back what waits behind tasks that take long: other workers may be idle."""
        with suppress(IndexError):  # another thread has taken the last one
            while intake.buffer and intake.stands:
                tag, _queue, _payload = intake.buffer.popleft()
                self.give_back_one(tag)

    def _claim_once(self, intake: Intake, wanted: int) -> bool:
        hands, client = self.hands, self.client
        if hands is None or client is None or hands.full or hands.alone or not client.alive:
            self._hungry = True
            return False
        for supply in intake.in_turn():
            if taken := supply.claim(client.client_id, wanted):
                self._have(intake, supply, taken)
                return True
        return False

    def _have(self, intake: Intake, supply: Supply, taken: Taken) -> None:
        """Have in hand what was claimed, for a channel."""
        for tag, payload in self._read(supply, taken):
            intake.buffer.append((tag, supply.queue, payload))
        if supply.queue not in intake.queues:  # its consumer has ended meanwhile
            self.cancel(intake, supply.queue)

    def _read(self, supply: Supply, taken: Taken) -> Iterator[tuple[int, Payload]]:
        """Yield the messages of a claim with their tags; what cannot be read is a dead letter.

        A claim is given back whose client id has no lease any more.
        """
        assert self.client is not None and self.hands is not None  # noqa: S101, PT018 - who claims
        if not self.client.keeps(taken.delivery.client_id):
            with suppress(LeaseLost):
                release(taken.delivery)
            return
        for tag, message in self.hands.take(supply, taken):
            try:
                payload = payload_of(message, taken.delivery.attempt)
                too_old = is_too_old(message, payload)
            except Exception as error:  # noqa: BLE001 - anybody may send to the topic of a queue
                self.hands.reject(tag, requeue=False, reason=f"no message of kombu: {error!r}")
                continue
            if too_old:
                self.hands.ack(tag)
            else:
                yield tag, payload

    def _measure(self) -> None:
        """Measure how many messages end in a second."""
        now = time.monotonic()
        if self.hands and now - self._counted_at > AHEAD_SECONDS:
            ended = self.hands.settled - self._counted
            self.rate = (self.rate + ended / (now - self._counted_at)) / 2
            self._counted, self._counted_at = self.hands.settled, now

    # -- the thread that writes what has ended, and keeps the lease --

    def _wake_keeper(self) -> None:
        with self._keep:
            self._keep.notify()

    def _keeps(self) -> None:
        client, hands = self.client, self.hands
        assert client is not None and hands is not None  # noqa: S101, PT018 - see _register
        lock = self._lock = DeathLock(client, self.using)
        renew_at = 0.0

        def step() -> float:
            nonlocal renew_at
            lock.keep()
            if time.monotonic() >= renew_at:
                self._renew(client, hands)
                renew_at = time.monotonic() + RENEW_SECONDS
            # An error of it must not end the lease, nor the time that it takes.
            wrote = hands.flush(renew_at)
            return TOGETHER_SECONDS if wrote else 0.0

        while not self._stopping:
            pause = self._guarded(step)
            if pause:
                time.sleep(pause)
            due = min(lock.pause, renew_at - time.monotonic())
            with self._keep:
                self._keep.wait_for(lambda: hands.pending or self._stopping, max(0.01, due))
        self._threads[0].join(LEAVE_SECONDS)  # it claims nothing after this
        self._guarded(lambda: self._take_leave(client, hands))

    def _renew(self, client: Client, hands: Hands) -> None:
        was_alive = client.alive
        if not was_alive:
            # After an outage all clients get a lease of time, by the first sweep.
            sweep_if_due(self.using)
        if client.renew() or (client.leave_deleted() and client.renew()):
            hands.extend()
            if not was_alive:
                self._ready()  # what was fetched before waits
            return
        # First, so that nothing which is lost is handed over, and no lease is left to it.
        client.deregister()
        lost = hands.lose()
        for intake in self.intakes:
            intake.buffer.clear()
        logger.warning(
            "The lease of %s had expired: %d messages in hand are lost to others",
            *(client.client_id, lost),
            extra=event("lease.renewed_late", client=client.client_id),
        )
        client.register()

    def _take_leave(self, client: Client, hands: Hands) -> float:
        hands.flush()
        hands.give_back()
        client.deregister()
        if self._file is not None:
            self._file.close()
        return 0.0

    # -- the thread that looks after what others have left --

    def _looks_after(self) -> None:
        client = self.client
        assert client is not None  # noqa: S101 - see _register
        deaths, gone = Deaths(self.using), GoneClients(self.using)
        due = 0.0
        autodiscover()  # @consumer says how many retries a group has

        def step() -> float:
            nonlocal due
            if deaths.noticed() and deaths.recover():
                self.wake()
            held = self._lock is not None and self._lock.held
            if held and gone.step(client.client_id) and sweep(self.using):
                self.wake()
            if time.monotonic() >= due:
                due = time.monotonic() + SWEEP_EVERY.total_seconds()
                if sweep_if_due(self.using):
                    self.wake()
                note_sequencing(self.using)
                purge_if_due(self.using, PURGE_SECONDS)
                run_steps_of_apps(self.using, due)
                kept_ends.of(self.using).keep_if_due()
            return max(0.0, min(LOOK_DEATHS_SECONDS, due - time.monotonic()))

        while not self._stopping:
            pause = self._guarded(step)
            with self._condition:
                self._condition.wait_for(lambda: self._stopping, pause)

    def stop(self) -> None:
        """End in some seconds, also when the database does not answer: leases end by themselves."""
        if not self.running:
            return
        _running.discard(self)
        self._stopping = True
        with self._condition:
            self._condition.notify_all()
        self._wake_keeper()
        until = time.monotonic() + LEAVE_SECONDS
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))


_running: set[Engine] = set()


def running(naming: Naming) -> Engine | None:
    """Return an engine of this process that can send for others; None if there is none."""
    for engine in list(_running):
        if engine.running and engine.client is not None and engine.naming == naming:
            return engine
    return None
