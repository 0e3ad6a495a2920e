"""Publishes to a broker by kombu, and tells what the broker has taken.

A connection belongs to one thread of one process. It is made when something is published, and anew
after an error, after a fork, and when it was idle for so long that the broker may have closed it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from streams.consume.outcome.failure import ResourceAway
from streams.errors import text_of

# In seconds. The broker closes a connection that is silent for twice as long; nobody sends
# heartbeats while a thread has nothing to publish, so after this time it gets another connection.
HEARTBEAT_SECONDS = 30
# What AMQP answers if one message is to blame, not the exchange or the connection: it is too large,
# or cannot be a message.
OF_A_MESSAGE = {311, 406, 501, 502}


class NotTaken(Exception):
    """The broker has refused the message, or no queue would have got it."""


@dataclass(frozen=True)
class Publication:
    """A message as the broker is to get it."""

    id: str
    routing_key: str
    body: bytes
    content_type: str
    content_encoding: str
    timestamp: int
    headers: Mapping[str, str]

    @property
    def properties(self) -> dict[str, Any]:
        return {"message_id": self.id, "timestamp": self.timestamp, "delivery_mode": 2}


@dataclass
class Answers:
    """What became of publications, by their ids; of the others nothing is known."""

    taken: set[str] = field(default_factory=set)
    refused: dict[str, Exception] = field(default_factory=dict)

    def lacking(self, publications: Sequence[Publication]) -> list[Publication]:
        """Return those of which nothing is known."""
        known = self.taken | self.refused.keys()
        return [one for one in publications if one.id not in known]


class Broker:
    """The broker at ``url``, which answers within ``seconds``.

    ``exchange`` is a name, or an Exchange of kombu, which is declared.
    """

    def __init__(self, url: str, exchange: Any, seconds: float) -> None:
        self._url, self._exchange, self.seconds = url, exchange, seconds
        self._own = _OfThread()

    def publish(self, wanted: Sequence[Publication], answers: Answers, until: float) -> None:
        """Publish in this order, and note the answers. Raises ResourceAway if any lacks one.

        ``until``, of the monotonic clock, the broker may take its time.
        """
        try:
            self._try_twice(wanted, answers, until)
        except _Blamed:
            # It is not said which message is to blame: each has a connection for itself now.
            for one in answers.lacking(wanted):
                try:
                    self._try([one], answers, until)
                except _Blamed as blamed:
                    answers.refused[one.id] = NotTaken(str(blamed))

    def close(self) -> None:
        """Close the connection of this thread."""
        link, self._own.link = self._own.link, None
        if link:
            with suppress(Exception):
                link.close()

    def _try_twice(self, wanted: Sequence[Publication], answers: Answers, until: float) -> None:
        link = self._link()
        try:
            self._try(wanted, answers, until)
        except _Stale:
            if link is None:
                raise
            # The broker may have been started again since this connection was used.
            self._try(answers.lacking(wanted), answers, until)

    def _try(self, wanted: Sequence[Publication], answers: Answers, until: float) -> None:
        link = self._link()
        try:
            if link is None:
                link = self._own.link = BrokerLink(self._url, self._exchange, self.seconds)
            link.publish(wanted, answers, until)
        except ImportError as error:
            raise ResourceAway(f"{error} (pip install django-ems[relay])") from None
        except Exception as error:  # noqa: BLE001 - each transport has its own
            self._own.link = None
            # Without the cause: its text may have the password of the URL.
            raise self._judged(error, link) from None

    def _link(self) -> BrokerLink | None:
        """Return the connection of this thread, if it can still be used."""
        link = self._own.link
        if link and link.pid != os.getpid():
            _of_parents.append(link)
            self._own.link = None
        elif link and link.is_idle:
            self.close()
        return self._own.link

    def _judged(self, error: Exception, link: BrokerLink | None) -> Exception:
        """Return what an error says, and drop the connection."""
        text = f"{type(error).__name__}: {text_of(error)}"
        for secret in _secrets(self._url):
            text = text.replace(secret, "…")
        if link is None:
            return ResourceAway(text)
        with suppress(Exception):
            link.drop()
        of_message = getattr(error, "reply_code", 0) in OF_A_MESSAGE
        if of_message or not isinstance(error, link.errors):
            return _Blamed(text)
        return ResourceAway(text) if isinstance(error, TimeoutError) else _Stale(text)


class _Blamed(Exception):
    """A message is to blame, it is not known which one."""


class _Stale(ResourceAway):
    """The connection is lost."""


# Those that a fork has copied: their sockets are those of the parent process, and stay open.
_of_parents: list[BrokerLink] = []


class _OfThread(threading.local):
    link: BrokerLink | None = None


class BrokerLink:
    """One connection to a broker, with its channel."""

    def __init__(self, url: str, exchange: Any, seconds: float) -> None:
        from kombu.connection import Connection

        self.pid = os.getpid()
        self._used_at = time.monotonic()
        self._name = exchange if isinstance(exchange, str) else exchange.name
        make: Any = Connection
        client = make(url, connect_timeout=seconds, heartbeat=HEARTBEAT_SECONDS)
        # What the URL says comes first.
        client.transport_options = timeouts(client.transport, seconds) | client.transport_options
        self._transport = client.transport
        # What says that the broker or the connection is to blame.
        transport = self._transport
        self.errors = (OSError, *transport.connection_errors, *transport.channel_errors)
        # Not by the connection of kombu, which tries again and waits in between.
        self._connection = self._transport.establish_connection()
        try:
            self._channel: Any = self._transport.create_channel(self._connection)
            if not isinstance(exchange, str) and exchange.name:
                exchange(self._channel).declare()
            confirms = hasattr(self._channel, "confirm_select")
            self._confirms = Confirms(self._channel) if confirms else None
        except BaseException:
            self.drop()
            raise

    @property
    def is_idle(self) -> bool:
        return time.monotonic() - self._used_at > HEARTBEAT_SECONDS

    def publish(self, wanted: Sequence[Publication], answers: Answers, until: float) -> None:
        """Publish, and wait ``until`` then for what the broker says."""
        if self._confirms:
            self._confirms.answers = answers
        for one in wanted:
            message = self._channel.prepare_message(
                one.body,
                content_type=one.content_type,
                content_encoding=one.content_encoding,
                headers=dict(one.headers),
                properties=one.properties,
            )
            left = _left(until)
            to = {"exchange": self._name, "routing_key": one.routing_key}
            if self._confirms:
                self._confirms.expect(one)
                self._channel.basic_publish(message, mandatory=True, timeout=left, **to)
            elif self._reaches_a_queue(one.routing_key):
                self._channel.basic_publish(message, **to)
                answers.taken.add(one.id)
            else:
                answers.refused[one.id] = NotTaken(f"no queue gets {one.routing_key!r}")
        while self._confirms and self._confirms.open:
            self._transport.drain_events(self._connection, timeout=_left(until))
        self._used_at = time.monotonic()

    def _reaches_a_queue(self, routing_key: str) -> bool:
        """Tell whether a queue is bound; the virtual transports would drop the message else."""
        look = getattr(self._channel, "_lookup", None)
        return not (self._name and look) or any(look(self._name, routing_key))

    def close(self) -> None:
        self._transport.close_connection(self._connection)

    def drop(self) -> None:
        """Close without a word to the broker, which may hang."""
        collect = getattr(self._transport, "_collect", None)
        if collect:
            collect(self._connection)
        else:
            self.close()


class Confirms:
    """The confirms of a channel: each message is numbered, and acked or nacked by its number."""

    def __init__(self, channel: Any) -> None:
        self.answers = Answers()
        self.open: dict[int, Publication] = {}
        self._last = 0
        channel.confirm_select()
        channel.events["basic_ack"].add(self._ack)
        channel.events["basic_nack"].add(self._nack)
        channel.events["basic_return"].add(self._return)

    def expect(self, publication: Publication) -> None:
        self._last += 1
        self.open[self._last] = publication

    def _ack(self, number: int, multiple: bool) -> None:
        # What was returned is acked, too, after that.
        for one in self._ended(number, multiple):
            if one.id not in self.answers.refused:
                self.answers.taken.add(one.id)

    def _nack(self, number: int, multiple: bool) -> None:
        for one in self._ended(number, multiple):
            self.answers.refused[one.id] = NotTaken("the broker has refused it (basic.nack)")

    def _return(self, error: Exception, exchange: str, routing_key: str, message: Any) -> None:
        of = message.properties["message_id"]
        self.answers.refused[of] = NotTaken(f"no queue gets {routing_key!r}")

    def _ended(self, number: int, multiple: bool) -> list[Publication]:
        numbers = [n for n in self.open if n <= number] if multiple else [number]
        return [self.open.pop(n) for n in numbers]


def timeouts(transport: Any, seconds: float) -> dict[str, Any]:
    """Return the options with which a call of this transport ends, though the broker hangs."""
    driver = getattr(transport, "driver_type", "")
    if driver == "amqp":
        return {"read_timeout": seconds, "write_timeout": seconds}
    if driver == "redis":
        return {"socket_timeout": seconds, "socket_connect_timeout": seconds}
    return {}


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("the broker does not answer in time")
    return left


def _secrets(url: str) -> list[str]:
    """Return what must be in no text: the password, as it is in the URL and as it is meant."""
    try:
        password = urlsplit(url).password
    except ValueError:
        password = None
    return [url, unquote(password), password] if password else [url]
