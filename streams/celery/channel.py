"""Defines the channel: what kombu calls to declare queues, to publish and to consume."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from operator import itemgetter
from typing import Any, TypeVarTuple

from django.db import Error, connections
from kombu.transport import virtual

from streams.api import Outgoing
from streams.celery.control import Binding, Bindings, Mailbox, Post
from streams.celery.engine import Engine, Intake, running
from streams.celery.envelope import Payload, id_of, is_task, outgoing
from streams.celery.naming import GROUP, Naming
from streams.celery.purging import purge
from streams.database.elsewhere import elsewhere
from streams.database.retrying import PATIENCE, retrying
from streams.database.transactions import (
    can_commit_apart,
    in_test_case,
    in_transaction,
    supports_other_connections,
)
from streams.errors import SendOutcomeUnknown, TaskRefused, UnknownTopic
from streams.log.lag import lags
from streams.log.topics import resolve
from streams.logs import event
from streams.models import Consumer, ConsumerGroup, Message, Topic
from streams.produce.send import send, send_many

Ts = TypeVarTuple("Ts")
logger = logging.getLogger("streams.celery")

# How the exchanges of events, and of commands and their replies, end: only processes read them.
ONLY_FOR_PROCESSES = ("celeryev", ".pidbox")
TRANSIENT = 1  # a delivery mode: the message need not outlive the broker

# Who sends outside a task waits so long for a database that is away; a task waits longer, since
# what follows on it would be lost.
PATIENCE_SECONDS = 1.0

# Tags of messages that were not claimed are negative.
_unclaimed = count(-1, -1)


class Deliveries(virtual.QoS):  # type: ignore[misc]
    """What a channel has got and not ended. The engine has the rest: see hands.py."""

    restore_at_shutdown = False

    def __init__(self, channel: Channel, prefetch_count: int = 0) -> None:
        self.channel = channel
        self._delivered: dict[int, Any] = {}

    @property
    def prefetch_count(self) -> int:
        return self.channel.intake.prefetch

    @prefetch_count.setter
    def prefetch_count(self, value: int) -> None:
        self.channel.intake.prefetch = value or 0
        self.channel.engine.wake()
        self.channel.connection.signal()

    def can_consume(self) -> bool:
        return self.channel.intake.room() > 0

    def append(self, message: Any, delivery_tag: int) -> None:
        """Do nothing: the intake has the tag since the message was handed over."""

    def ack(self, delivery_tag: int) -> None:
        self.channel.posts.pop(delivery_tag, None)
        self._end(delivery_tag, lambda hands: hands.ack(delivery_tag))

    def reject(self, delivery_tag: int, requeue: bool = False) -> None:
        box, post = self.channel.posts.pop(delivery_tag, (None, None))
        if box and post and requeue:
            box.put_back(post)
            self.channel.connection.signal()
        self._end(delivery_tag, lambda hands: hands.reject(delivery_tag, requeue=requeue))

    def restore_unacked(self) -> list[Any]:
        for box, post in reversed(list(self.channel.posts.values())):
            box.put_back(post)
        self.channel.posts.clear()
        for tag in list(self.channel.intake.out):
            self._end(tag, lambda hands, tag=tag: hands.give_back_one(tag))
        return []

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """Give back what is left when the channel is closed."""
        self.restore_unacked()

    def _end(self, tag: int, end: Any) -> None:
        intake, engine = self.channel.intake, self.channel.engine
        intake.end(tag)
        if engine.hands is not None:
            end(engine.hands)
        engine.settled(intake)
        if intake.buffer:  # there is room for one of them: nobody else says so
            self.channel.connection.signal()


class Channel(virtual.Channel):  # type: ignore[misc]
    """A channel on the tables of EMS: queues of tasks are topics, others are read in one topic."""

    QoS = Deliveries
    supports_fanout = True
    do_restore = False
    body_encoding = None

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self.intake = Intake()
        self.no_ack: set[str] = set()
        # What this channel has of the queues of processes, by tag.
        self.posts: dict[int, tuple[Mailbox, Post]] = {}
        self._brief: set[str] = set()  # queues of tasks that were declared as not durable
        self._counts = True

    @property
    def engine(self) -> Engine:
        found: Engine = self.connection.engine
        return found

    @property
    def naming(self) -> Naming:
        found: Naming = self.connection.naming
        return found

    @property
    def bindings(self) -> Bindings:
        found: Bindings = self.connection.bindings
        return found

    # -- queues --

    def queue_declare(self, queue: str | None = None, passive: bool = False, **kwargs: Any) -> Any:
        self._counts = passive  # else nobody asks how many there are: it costs statements
        return super().queue_declare(queue, passive, **kwargs)

    def _new_queue(self, queue: str, **options: Any) -> None:
        # Those of Celery and kombu for commands, replies, events and results have one of these.
        if options.get("auto_delete") or options.get("exclusive"):
            self._new_box(queue)
        else:
            self._make(self.naming.topics(queue))
            # Tasks may be sent to it: they must not get lost, though its messages may.
            (self._brief.discard if options.get("durable", True) else self._brief.add)(queue)

    def _make(self, topics: list[str]) -> None:
        using = self.naming.using

        def make() -> None:
            for topic in topics:
                resolve(topic, using, create=True)

        try:
            self._patiently(make)
        except Error:
            # The open transaction has failed, and what Celery sends now may be no part of it.
            if not can_commit_apart(using):
                raise
            elsewhere(using, make)

    def _new_box(self, queue: str) -> None:
        if not self._is_box(queue):
            self.engine.control.declare(queue)
            # What comes from now on is for it, also before somebody consumes.
            self.engine.ask(self.engine.control.tail.begin_at_end)

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        topics = Topic.objects.using(self.naming.using)
        return self._is_box(queue) or topics.filter(name=self.naming.topic(queue)).exists()

    def _size(self, queue: str) -> int:
        if self._is_box(queue):
            return len(self.engine.control.boxes[queue].messages)
        return self._waiting(queue) if self._counts else 0

    def _is_box(self, queue: str) -> bool:
        return queue in self.engine.control.boxes

    def exchange_declare(
        self, exchange: str | None = None, *args: Any, passive: bool = False, **kwargs: Any
    ) -> None:
        """Declare an exchange; of one that was learned from others only its table is kept."""
        learned: dict[str, Any] = {}
        if not passive and self.state.exchanges.get(exchange, {}).get("learned"):
            learned = self.state.exchanges.pop(exchange)
        super().exchange_declare(exchange, *args, passive=passive, **kwargs)
        if learned:
            prepare = self.typeof(exchange).prepare_bind
            self.state.exchanges[exchange]["table"] = [
                prepare(queue, exchange, key, None) for key, _pattern, queue in learned["table"]
            ]

    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **kwargs: Any,
    ) -> None:
        exchange, key = exchange or "amq.direct", routing_key or ""
        self.state.exchanges.setdefault(
            exchange,
            {
                "type": "direct",
                "durable": True,
                "auto_delete": False,
                "arguments": {},
                "table": [],
            },
        )
        super().queue_bind(queue, exchange, key, arguments, **kwargs)
        kind = self.typeof(exchange).type
        if kind == "fanout" and queue in self._brief:
            self._new_box(queue)  # what is sent there is only for processes
        if self._is_box(queue):
            _key, pattern, _queue = self.typeof(exchange).prepare_bind(queue, exchange, key, None)
            self.engine.control.boxes[queue].bindings.add((exchange, kind, key, pattern))
        else:
            self._patiently(self.bindings.add, Binding(exchange, kind, key, queue))

    def _queue_bind(self, exchange: str, routing_key: str, pattern: Any, queue: str) -> None:
        """Do nothing more: queue_bind() has noted it."""

    def queue_unbind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **kwargs: Any,
    ) -> None:
        exchange, key = exchange or "amq.direct", routing_key or ""
        self._unbind_here(queue, exchange, key)
        if not self._is_box(queue):
            self.bindings.remove(exchange=exchange, key=key, queue=queue)

    def _unbind_here(self, queue: str, exchange: str, key: str) -> None:
        super().queue_unbind(queue, exchange, key)
        if self._is_box(queue):
            box = self.engine.control.boxes[queue]
            box.bindings = {one for one in box.bindings if (one[0], one[2]) != (exchange, key)}

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any
    ) -> Any:
        """Delete a queue of this process; of one of tasks, what binds it and what waits in it."""
        if self._is_box(queue):
            return super().queue_delete(queue, if_unused, if_empty, **kwargs)
        if (if_empty and self._waiting(queue)) or (if_unused and self._is_read(queue)):
            return 0
        for exchange, key, _arguments in list(self.state.queue_bindings(queue)):
            self._unbind_here(queue, exchange, key)
        self.bindings.remove(queue=queue)
        # What has come to an empty queue since then is to be kept, too.
        return 0 if if_empty else self._purge(queue)

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        """Delete an exchange, and no queue."""
        table = self.state.exchanges.get(exchange, {}).get("table", ())
        if if_unused and (table or self.bindings.has(exchange)):
            return
        for key, _pattern, queue in list(table):
            self._unbind_here(queue, exchange, key)
        self.bindings.remove(exchange=exchange)
        self.state.exchanges.pop(exchange, None)

    def _delete(self, queue: str, *args: Any, **kwargs: Any) -> None:
        self.engine.control.delete(queue)

    def after_reply_message_received(self, queue: str) -> None:
        """Keep the queue of replies: the next command needs it again."""

    # -- publishing --

    def basic_publish(
        self, message: Payload, exchange: str, routing_key: str, **kwargs: Any
    ) -> None:
        self._patiently(self._publish, message, exchange, routing_key)

    def _patiently(self, work: Callable[[*Ts], None], *args: *Ts) -> None:
        """Do ``work``; outside a transaction, again for a while if the database is away."""
        token = PATIENCE.set(PATIENCE.get() if _request() else PATIENCE_SECONDS)
        try:
            retrying(work, self.naming.using, *args)
        finally:
            PATIENCE.reset(token)

    def _publish(self, message: Payload, exchange: str, routing_key: str) -> None:
        """Send to all places or to none: all that is written is one statement or transaction."""
        info = message["properties"].setdefault("delivery_info", {})
        info.update(exchange=exchange or "", routing_key=routing_key or "")
        task = is_task(message)
        queues = self._queues_of(exchange, routing_key, message, is_task=task)
        continues = task and _continues(message)
        apart = continues and self._is_apart()
        is_said = self._is_for_processes(message, exchange, queues, is_task=task)
        priority = message["properties"].get("priority")
        ones = [outgoing(self.naming.topic(queue, priority), message) for queue in queues]
        engine: Engine | None = None
        if is_said:
            said = replace(outgoing(self.naming.control, message), tag="", deliver_at=None)
            if (engine := self._sends_later(is_task=task)) is None:
                ones.append(said)
        elif not queues and task:
            raise _refused(exchange, routing_key)
        elif not queues and exchange:
            logger.warning(
                "No queue is bound to exchange %r for %r: the message is dropped",
                *(exchange, routing_key),
                extra=event("celery.unroutable", exchange=exchange, key=routing_key),
            )
        # Neither commands nor what continues a task is to be part of a transaction, so one on
        # another alias is no reason to refuse it.
        is_free = continues or not (task or queues)
        using = self.naming.using if is_free else self.connection.send_using
        if ones:
            self._send(ones, using, apart=apart, continues=continues)
        if engine is not None:
            engine.publish(said)

    def _sends_later(self, *, is_task: bool) -> Engine | None:
        """Return the engine of a worker, which need not wait until what is for processes is sent.

        None for a task, which must not get lost, and in a transaction.
        """
        if is_task or connections[self.naming.using].in_atomic_block:
            return None
        return running(self.naming)

    def _queues_of(self, exchange: str, key: str, message: Payload, *, is_task: bool) -> list[str]:
        """Return the queues of tasks to which the message goes."""
        if not exchange:
            return [] if self._is_box(key) else [key]
        if not is_task and not self._may_be_bound(exchange, message):
            return self._bound(exchange, key)
        # Also where one is known here: others may have bound more, and each gets its copy.
        self._note(exchange, self.bindings.look())
        if not (found := self._bound(exchange, key)):
            self._note(exchange, self.bindings.look(again=True))
            found = self._bound(exchange, key)
        return found

    def _note(self, exchange: str, bindings: Mapping[Binding, bool]) -> None:
        """Let the routing table have what is bound to the exchange by now, by any process."""
        ours = [(one, bound) for one, bound in bindings.items() if one.exchange == exchange]
        # What was removed is first: it may be there again, by another type of the exchange.
        for one, bound in sorted(ours, key=itemgetter(1)):
            if not bound:
                super().queue_unbind(one.queue, exchange, one.key)
                continue
            if exchange not in self.state.exchanges:
                self.exchange_declare(exchange, one.type, durable=True)
                self.state.exchanges[exchange]["learned"] = True
            super().queue_bind(one.queue, exchange, one.key)

    def _may_be_bound(self, exchange: str, message: Payload) -> bool:
        """Tell whether a message that is no task may be for queues of tasks, bound by any process.

        Not what only processes read, and what need not outlive the broker.
        """
        if exchange.endswith(ONLY_FOR_PROCESSES):
            return False
        known = self.state.exchanges.get(exchange)
        return known is None or bool(known["durable"]) or not _is_transient(message)

    def _bound(self, exchange: str, key: str) -> list[str]:
        table = self.state.exchanges.get(exchange, {}).get("table")
        bound = self.typeof(exchange).lookup(table, exchange, key, None) if table else set()
        return sorted(queue for queue in bound if not self._is_box(queue))

    def _is_for_processes(
        self, message: Payload, exchange: str, queues: list[str], *, is_task: bool
    ) -> bool:
        if exchange and self.typeof(exchange).type == "fanout":
            return True
        if is_task:
            return False
        properties = message["properties"]
        transient = _is_transient(message)
        # A reply goes to the queue of a process, which only that one has declared. What else is to
        # outlive the broker is kept for a queue that nobody has declared yet.
        may_be_reply = transient or properties.get("correlation_id")
        if may_be_reply and not exchange and queues and not self._is_topic(queues[0]):
            queues.clear()
        return not queues and (transient or not exchange)

    def _is_topic(self, queue: str) -> bool:
        try:
            resolve(self.naming.topic(queue), self.naming.using, create=False)
        except UnknownTopic:
            return False
        return True

    def _is_apart(self) -> bool:
        """Tell whether what continues a task must stand though a transaction is rolled back.

        Celery sends it, by retry() or replace(), and then raises an error to end the task, which
        rolls its transaction back; the task is acknowledged all the same. After retry(throw=False)
        there is no error, but nothing in the message says so: it stands, too. Raises TaskRefused
        where there is no second connection.
        """
        using = self.naming.using
        if not in_transaction(using) or in_test_case(using):
            return False
        if not supports_other_connections(using):
            raise TaskRefused(
                "The task was not sent: its transaction would be rolled back by retry() or"
                " replace(), and this database has no other connection that could write."
                " Call them after the transaction; retry(throw=False) also by on_commit()."
            )
        return True

    def _send(
        self, ones: list[Outgoing], using: str | None, *, apart: bool, continues: bool
    ) -> None:
        def put() -> None:
            try:
                _write(ones, using)
            except SendOutcomeUnknown:
                if not continues:
                    raise
                # The task ends with an error if this does: rather it goes on twice than never.
                _write(ones, using)

        if apart:
            elsewhere(self.naming.using, partial(retrying, put, self.naming.using))
        else:
            put()

    # -- consuming --

    def basic_consume(
        self,
        queue: str,
        no_ack: bool,
        callback: Any,
        consumer_tag: str,
        **kwargs: Any,
    ) -> None:
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        self.connection.consumers[queue] = self
        (self.no_ack.add if no_ack else self.no_ack.discard)(queue)
        if self._is_box(queue):
            self.engine.control.boxes[queue].consumed = True
            self.engine.start()
            self.engine.wake()
            self.connection.signal()
        else:
            self.engine.consume(self.intake, queue)

    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is None or queue in self._active_queues:
            return
        self.connection.consumers.pop(queue, None)
        if self._is_box(queue):
            self.engine.control.boxes[queue].consumed = False
        else:
            self.engine.cancel(self.intake, queue)

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        payload = self._get_box(queue) if self._is_box(queue) else self._get_one(queue)
        if payload is None:
            return None
        message = self.Message(payload, channel=self)
        if no_ack:
            self.qos.ack(message.delivery_tag)
        return message

    def _get_box(self, queue: str) -> Payload | None:
        box = self.engine.control.boxes[queue]
        if not box.messages:
            self.engine.ask(self.engine.look)
        post = box.next()
        return None if post is None else self.taken(post)

    def _get_one(self, queue: str) -> Payload | None:
        engine = self.engine

        def give_back(found: tuple[int, Payload] | None) -> None:
            if found is not None:
                engine.give_back_one(found[0])

        found = engine.ask(lambda: engine.take_one(queue), late=give_back)
        if found is None:
            return None
        tag, payload = found
        return self.tagged(payload, tag)

    def tagged(self, payload: Payload, tag: int) -> Payload:
        """Return a claimed message with its tag, as this channel knows it."""
        self.intake.hand_over(tag, id_of(payload) or "")
        payload["properties"]["delivery_tag"] = tag
        return payload

    def taken(self, post: Post, box: Mailbox | None = None) -> Payload:
        """Return a message of a queue of this process with a tag; to ``box`` it can go back."""
        payload, tag = post[0], next(_unclaimed)
        if box is not None and box.name not in self.no_ack:
            self.posts[tag] = box, post
        payload["properties"]["delivery_tag"] = tag
        return payload

    def encode_body(self, body: Any, encoding: str | None = None) -> tuple[Any, str | None]:
        return body, encoding

    def decode_body(self, body: Any, encoding: str | None = None) -> Any:
        return body

    def close(self) -> None:
        if not self.closed:
            for queue in list(self.intake.queues):
                self.engine.cancel(self.intake, queue)
            if self.intake in self.engine.intakes:
                self.engine.intakes.remove(self.intake)
        super().close()

    # -- operating --

    def _groups(self, queue: str) -> list[ConsumerGroup]:
        groups = ConsumerGroup.objects.using(self.naming.using).select_related("topic")
        return list(groups.filter(topic__name__in=self.naming.topics(queue), name=GROUP))

    def _is_read(self, queue: str) -> bool:
        """Tell whether a worker consumes from the queue, in any process."""
        clients = Consumer.objects.using(self.naming.using).live()
        return clients.filter(group__in=self._groups(queue)).exists()

    def _waiting(self, queue: str) -> int:
        """Return how many messages of the queue wait for a worker."""
        using = self.naming.using
        groups = self._groups(queue)
        waiting = sum((lag.behind or 0) + lag.waiting for lag in lags(groups, using))
        topics = self.naming.topics(queue)
        inbox = Message.objects.using(using).inbox().filter(partition__topic__name__in=topics)
        return int(waiting + inbox.count())

    def _purge(self, queue: str) -> int:
        """Skip all that waits in the queue, and return how many messages that is."""
        if self._is_box(queue):
            box = self.engine.control.boxes[queue]
            number = len(box.messages)
            box.messages.clear()
            return number
        return purge(self.naming.topics(queue), self.naming.using)


def _write(ones: list[Outgoing], using: str | None) -> None:
    """Send all or none; one message costs less by ``send()``."""
    one, *more = ones
    if more:
        send_many(ones, using=using)
    else:
        send(
            one.topic,
            one.body,
            key=one.key,
            tag=one.tag,
            headers=one.headers,
            deliver_at=one.deliver_at,
            using=using,
        )


def _request() -> Any:
    """Return the request of the task that runs in this thread, or None."""
    from celery import current_task

    request = current_task.request if current_task else None
    return request if request and request.id else None  # without an id it is called as a function


def _is_transient(message: Payload) -> bool:
    return bool(message["properties"].get("delivery_mode") == TRANSIENT)


def _continues(message: Payload) -> bool:
    """Tell whether a task continues the one that runs in this thread.

    A retry and what replaces a task have its id. Of a chain that replaces it only the last task
    has, but Celery counts in each how often a task was replaced.
    """
    request = _request()
    if request is None:
        return False
    headers = message.get("headers") or {}
    replaced = (headers.get("replaced_task_nesting") or 0) > (request.replaced_task_nesting or 0)
    return replaced or id_of(message) == request.id


def _refused(exchange: str, key: str) -> TaskRefused:
    """Return the error for a task that no worker would get."""
    if exchange:
        return TaskRefused(
            f"The task was not sent: no queue is bound to exchange {exchange!r} for {key!r}, or"
            " only one with auto_delete or exclusive, which is of one process. For a fanout"
            " exchange, as a Broadcast has, call apply_async() with"
            f" declare=[Exchange({exchange!r}, type='fanout')]."
        )
    return TaskRefused(
        f"The task was not sent: queue {key!r} is of one process, since it is declared with"
        " auto_delete or exclusive. Declare it without them; to have each worker run the task,"
        " send it by a Broadcast."
    )
