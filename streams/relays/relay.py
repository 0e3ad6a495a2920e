"""Defines relay(), which registers a consumer group that publishes to a broker."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from importlib.util import find_spec
from itertools import zip_longest
from typing import Any, Literal
from urllib.parse import urlsplit

from streams import body as bodies
from streams.api import ReceivedMessage
from streams.consume.outcome.backoff import RetryPolicy
from streams.consume.outcome.failure import ResourceAway
from streams.consume.registry import Order, Registration, consumer
from streams.errors import InvalidConsumer
from streams.relays.broker import Answers, Broker, NotTaken, Publication
from streams.relays.routing_key import RoutingKey

# In bytes: what AMQP allows of a message id, which ends in /partition@offset, and a routing key.
LONGEST = 255
LONGEST_TOPIC = LONGEST - 31


def relay(
    topic: str,
    *,
    to: str,
    exchange: Any = "",
    routing_key: str = "{topic}",
    group: str = "",
    batch: int = 100,
    ordered: Order = False,
    seconds: float = 10.0,
    threads: int | None = None,
    start: Literal["earliest", "latest"] | datetime | None = None,
    tags: Sequence[str] = (),
    max_retries: int | None = None,
    retry: RetryPolicy | Sequence[timedelta | float] | None = None,
    consume_timeout: float | None = None,
) -> None:
    """Publish each message of ``topic`` to the broker at the URL ``to``, once at least.

    ``exchange`` is the name of an exchange, or an ``Exchange`` of kombu, which is declared then.
    ``routing_key`` may have ``{tag}``, ``{key}`` and ``{topic}``. The broker has ``seconds`` to
    connect and to confirm the messages of a call, at most ``batch``; while it is away the group
    waits, and no attempt is spent. ``ordered``: messages of one key are published one after the
    other; with "key" one that fails holds back its key alone. ``group`` is by default ``relay-``
    and the name of the exchange, or else of the transport. The others are as for
    :func:`consumer`. Raises InvalidConsumer, InvalidName.
    """
    scheme = _scheme(to)
    name = exchange if isinstance(exchange, str) else getattr(exchange, "name", None)
    if not isinstance(name, str):
        raise InvalidConsumer("exchange must be a name or an Exchange of kombu.")
    if getattr(exchange, "type", "") == "fanout" and not scheme.startswith(("amqp", "pyamqp")):
        raise InvalidConsumer(f"{scheme} drops what it publishes to a fanout exchange.")
    if len(topic.encode()) > LONGEST_TOPIC:
        raise InvalidConsumer(f"The topic of a relay has at most {LONGEST_TOPIC} bytes.")
    if not 0 < seconds <= 3600:
        raise InvalidConsumer("seconds must be > 0, and at most 3600.")
    if consume_timeout is not None and consume_timeout <= 3 * seconds:
        # A call may connect, publish, and connect once more.
        raise InvalidConsumer("consume_timeout must be more than three times seconds.")
    handler = Relay(to, exchange, RoutingKey(routing_key), seconds, ordered=ordered)
    register: Any = consumer  # the relay is a handler of batches
    register(
        topic,
        group=group or f"relay-{name or scheme}",
        batch=batch or 0,  # None would be a handler of single messages
        ordered=ordered,
        threads=threads,
        start=start,
        tags=tags,
        max_retries=max_retries,
        retry=retry,
        consume_timeout=consume_timeout,
    )(handler)


class Relay:
    """The handler of a relay."""

    def __init__(
        self, to: str, exchange: Any, routing_key: RoutingKey, seconds: float, *, ordered: Order
    ) -> None:
        parts = urlsplit(to)
        self._shown = f"{parts.scheme}://{parts.hostname or ''}"
        self._routing_key, self._ordered = routing_key, ordered
        self.broker = Broker(to, exchange, seconds)

    def __repr__(self) -> str:
        return f"<Relay to {self._shown}>"

    def __call__(self, messages: Sequence[ReceivedMessage]) -> Mapping[ReceivedMessage, Exception]:
        """Publish ``messages``; return those that the broker has not taken, each with its error."""
        until = time.monotonic() + self.broker.seconds
        known = {self._id(message): message for message in messages}
        answers = Answers()
        failed: dict[ReceivedMessage, Exception] = {}
        for wave in self._waves(messages):
            try:
                self._publish(
                    [one for one in wave if self._may_follow(one, failed)], answers, until
                )
            except ResourceAway as error:
                # What has no answer is given back, whichever wave it is of.
                left = known.keys() - answers.taken - answers.refused.keys()
                return {
                    known[of]: answers.refused.get(of, error) for of in {*left, *answers.refused}
                }
            failed = {known[of]: error for of, error in answers.refused.items()}
        return failed

    def _publish(self, messages: Iterable[ReceivedMessage], answers: Answers, until: float) -> None:
        wanted = [self._publication(message) for message in messages]
        for one in wanted:
            if len(one.routing_key.encode()) > LONGEST:
                answers.refused[one.id] = NotTaken(f"its routing key has more than {LONGEST} bytes")
        self.broker.publish(answers.lacking(wanted), answers, until)

    def _waves(self, messages: Sequence[ReceivedMessage]) -> Iterator[Sequence[ReceivedMessage]]:
        """Yield what is published together: in an ordered group one message of each key.

        The next one of a key is published when the one before has been taken. Those without a key
        are in order, too, but for a group that is ordered by key: there they have none.
        """
        if not self._ordered:
            yield messages
            return
        by_key: dict[str | int | None, list[ReceivedMessage]] = {}
        for message in messages:
            free = self._ordered == "key" and message.key is None
            by_key.setdefault(message.offset if free else message.key, []).append(message)
        for wave in zip_longest(*by_key.values()):
            yield [message for message in wave if message is not None]

    def _may_follow(self, message: ReceivedMessage, failed: Collection[ReceivedMessage]) -> bool:
        """Tell whether a message may be published, although others have failed.

        An ordered group repeats all from the first one on that has failed, and counts those before
        it as done. One that is ordered by key repeats what follows in the key of a failed message.
        """
        if self._ordered == "key":
            return message.key is None or all(message.key != one.key for one in failed)
        return not self._ordered or all(message.offset < one.offset for one in failed)

    def _id(self, message: ReceivedMessage) -> str:
        return f"{message.topic}/{message.partition}@{message.offset}"

    def _publication(self, message: ReceivedMessage) -> Publication:
        headers = {**message.headers, "ems-topic": message.topic}
        headers |= {"ems-tag": message.tag} if message.tag else {}
        headers |= {"ems-key": message.key} if message.key is not None else {}
        return Publication(
            id=self._id(message),
            routing_key=self._routing_key.of(message),
            body=message.raw_body,
            content_type=bodies.CONTENT_TYPES[message.body_type],
            content_encoding="binary" if message.body_type == bodies.BYTES else "utf-8",
            timestamp=int(message.created_at.timestamp()),
            headers=headers,
        )


def is_relay(registration: Registration) -> bool:
    return isinstance(registration.handler, Relay)


def has_kombu() -> bool:
    # Once imported it has no spec.
    return "kombu" in sys.modules or find_spec("kombu") is not None


def _scheme(url: Any) -> str:
    """Return the scheme of a broker's URL, which is in no error: it may have a password."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        scheme = parts.scheme if parts else ""
        _port = parts.port if parts else None
    except ValueError:
        scheme = ""
    if not scheme:
        raise InvalidConsumer("to must be the URL of a broker, such as amqp://user:…@host//.")
    if has_kombu():
        from kombu.transport import TRANSPORT_ALIASES

        # librabbitmq has no confirms.
        if scheme.partition("+")[0] not in TRANSPORT_ALIASES.keys() - {"librabbitmq"}:
            raise InvalidConsumer(f"kombu has no transport {scheme!r}.")
    return scheme
