"""Relays: what they publish, what they refuse, and what they tell. The broker is kombu's own, in
memory; tests/guarantees/test_relays.py has real ones.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Any

import pytest
from kombu.connection import Connection
from kombu.entity import Exchange, Queue

from streams import Outgoing, relay, send, send_many
from streams.checks import check_settings
from streams.consume.outcome.failure import ResourceAway
from streams.consume.registry import find, registrations
from streams.errors import InvalidConsumer, InvalidName
from streams.models import Cursor, DeadMessage, RetryMessage
from streams.relays import broker as brokers
from streams.relays.broker import Answers, Broker, Publication
from streams.testing import drain
from tests.consuming import registered

MEMORY = "memory://"

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]


class Bound:
    """A queue of the broker in memory, bound to an exchange; it is read as receivers do."""

    def __init__(self, exchange: str, binding: str, name: str = "") -> None:
        self._channel = Connection(MEMORY).channel()
        self._queue = Queue(name or exchange, Exchange(exchange, "topic"), binding)(self._channel)
        self._queue.declare()

    def got(self) -> list[Any]:
        found = []
        while message := self._queue.get(no_ack=True):
            found.append(message)
        return found


@pytest.fixture(autouse=True)
def _nothing_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with an empty broker, and with no link of this thread to it."""
    from kombu.transport.memory import Channel, Transport
    from kombu.transport.virtual import BrokerState

    monkeypatch.setattr(Channel, "queues", {})
    monkeypatch.setattr(Transport, "global_state", BrokerState())


def topic_relay(**options: Any) -> None:
    relay("orders", to=MEMORY, exchange=Exchange("shop", "topic"), **options)


def test_a_message_arrives_with_all_that_it_has():
    topic_relay(routing_key="order.{tag}")
    queue = Bound("shop", "order.#")
    traced = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "who": "Jörg"}
    send("orders", {"n": "ü"}, key="k", tag="paid", headers=traced)
    assert drain("relay-shop").done == 1
    (message,) = queue.got()
    assert message.payload == {"n": "ü"}
    assert (message.content_type, message.content_encoding) == ("application/json", "utf-8")
    assert message.delivery_info["routing_key"] == "order.paid"
    assert message.properties["message_id"] == "orders/0@0"
    assert abs(message.properties["timestamp"] - time.time()) < 60
    assert message.properties["delivery_mode"] == 2
    own = {"ems-topic": "orders", "ems-key": "k", "ems-tag": "paid"}
    assert message.headers == {**traced, **own}


@pytest.mark.parametrize(
    ("body", "content_type", "encoding", "arrives"),
    [
        ("ä", "text/plain", "utf-8", "ä"),
        (b"\x00\xff", "application/octet-stream", "binary", b"\x00\xff"),
        ([1], "application/json", "utf-8", b"[1]"),
    ],
)
def test_the_content_type_is_that_of_the_body(body, content_type, encoding, arrives):
    relay("orders", to=MEMORY, exchange="", routing_key="plain")
    Bound("", "", "plain")
    send("orders", body)
    assert drain("relay-memory").done == 1
    channel = Connection(MEMORY).channel()
    message = Queue("plain")(channel).get(no_ack=True)
    assert (message.content_type, message.content_encoding) == (content_type, encoding)
    assert message.body in (arrives, str(arrives).encode())


def test_what_no_queue_would_get_has_failed_and_the_others_are_done():
    topic_relay(routing_key="{tag}.{key}.{topic}", max_retries=0)
    queue = Bound("shop", "paid.#")
    send_many([Outgoing("orders", n, tag="lost" if n == 1 else "paid") for n in range(3)])
    result = drain()
    assert (result.done, result.dead) == (2, 1)
    assert [m.payload for m in queue.got()] == [0, 2]
    dead = DeadMessage.objects.get()
    assert (dead.offset, dead.error_class) == (1, "streams.relays.broker.NotTaken")
    assert dead.error == "no queue gets 'lost..orders'"


def test_a_routing_key_that_is_too_long_fails_its_message_only():
    topic_relay(routing_key="a.{key}", max_retries=0)
    queue = Bound("shop", "a.#")
    send_many([Outgoing("orders", n, key="k" * (254 if n else 1)) for n in range(2)])
    assert drain().done == 1
    assert [m.payload for m in queue.got()] == [0]
    assert "more than 255 bytes" in DeadMessage.objects.get().error


class Scripted(Broker):
    """A broker that takes what the script says, and notes what is published together."""

    def __init__(self, refuses: set[str], away_at: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        super().__init__(MEMORY, "", 1.0)
        self.refuses, self.away_at = refuses, away_at
        self.calls: list[list[str]] = []

    def publish(self, wanted, answers, until):
        if wanted:
            self.calls.append([one.id.partition("@")[2] for one in wanted])
        for one in wanted:
            offset = one.id.partition("@")[2]
            if offset in self.away_at:
                raise ResourceAway("away")
            if offset in self.refuses:
                answers.refused[one.id] = brokers.NotTaken("refused")
            else:
                answers.taken.add(one.id)


def keys_sent(keys: str) -> None:
    send_many([Outgoing("orders", n, key=None if k == "-" else k) for n, k in enumerate(keys)])


def scripted(broker: Scripted) -> Scripted:
    vars(registered("orders", "relay-shop").handler)["broker"] = broker
    return broker


def test_an_ordered_relay_publishes_the_next_message_of_a_key_after_the_one_before():
    topic_relay(ordered=True, batch=10)
    broker = scripted(Scripted(set()))
    keys_sent("aab-a-")
    assert drain().done == 6
    assert broker.calls == [["0", "2", "3"], ["1", "5"], ["4"]]


def test_a_plain_relay_publishes_a_batch_at_once():
    topic_relay(batch=10)
    broker = scripted(Scripted(set()))
    keys_sent("aab-a-")
    assert drain().done == 6
    assert broker.calls == [["0", "1", "2", "3", "4", "5"]]


def test_after_a_failure_an_ordered_relay_publishes_what_was_sent_before_it_and_nothing_after():
    topic_relay(ordered=True, batch=10)
    broker = scripted(Scripted({"2"}))
    keys_sent("aabbab")  # 2 is the first b
    result = drain()
    assert (result.done, result.failed) == (2, 1)
    assert broker.calls == [["0", "2"], ["1"]]
    cursor = Cursor.objects.get()
    assert (cursor.next_offset, cursor.attempt, cursor.is_blocked) == (2, 2, True)


def test_in_an_ordered_relay_nothing_of_a_key_follows_its_failure():
    topic_relay(ordered=True, batch=10)
    broker = scripted(Scripted({"1"}))
    keys_sent("aaaa")
    drain()
    assert broker.calls == [["0"], ["1"]]


def test_what_has_failed_before_the_broker_went_away_is_retried_and_not_lost():
    topic_relay(batch=10)
    scripted(Scripted({"1"}, {"3"}))
    keys_sent("abcde")
    with pytest.raises(ResourceAway):
        drain()
    assert [row.offset for row in RetryMessage.objects.all()] == [1]


def test_in_an_ordered_relay_what_waits_for_its_turn_is_given_back_when_the_broker_is_away():
    topic_relay(ordered=True, batch=10)
    scripted(Scripted(set(), {"2"}))
    keys_sent("aaab")  # 0 and 3, then 1, then 2
    with pytest.raises(ResourceAway):
        drain()
    cursor = Cursor.objects.get()
    assert (cursor.next_offset, cursor.attempt, cursor.is_blocked) == (2, 1, False)


@pytest.mark.parametrize(
    "template", ["{body}", "{}", "{0}", "{tag!r}", "{tag:>4}", "{tag.x}", "{key[0]}", "{", "a}"]
)
def test_a_bad_template_is_an_error_at_once(template):
    with pytest.raises(InvalidConsumer, match="routing_key"):
        topic_relay(routing_key=template)
    assert not list(registrations())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"to": "broker"}, "must be the URL"),
        ({"to": None}, "must be the URL"),
        ({"to": "smtp://user:secret@host"}, "no transport 'smtp'"),
        ({"to": "librabbitmq://host"}, "no transport"),
        ({"to": "amqp://user:secret@host:port//"}, "must be the URL"),
        ({"exchange": 7}, "exchange must be"),
        ({"exchange": Exchange("all", "fanout")}, "fanout"),
        ({"topic": "ü" * 120}, "bytes"),
        ({"seconds": 0}, "seconds"),
        ({"seconds": 10.0, "consume_timeout": 30}, "consume_timeout"),
        ({"batch": 0}, "batch"),
        ({"batch": None}, "batch"),
    ],
)
def test_bad_arguments_are_errors_at_once_and_show_no_password(options, error):
    given: dict[str, Any] = {"topic": "orders", "to": MEMORY, **options}
    with pytest.raises(InvalidConsumer, match=error) as failure:
        relay(**given)
    assert "secret" not in str(failure.value)
    assert not list(registrations())


def test_a_group_may_be_named_and_has_else_the_name_of_the_exchange_or_transport():
    topic_relay()
    topic_relay(group="other")
    relay("orders", to="redis://:secret@host/1")
    assert sorted(one.group for one in registrations()) == ["other", "relay-redis", "relay-shop"]
    with pytest.raises(InvalidName):
        relay("orders", to=MEMORY, exchange="a b")
    assert find("orders", "relay-a b") is None


URL = "amqp://user:p%2Fss-word@127.0.0.1:1//"


def test_a_broker_that_is_away_spends_nothing_and_no_text_has_its_password(caplog):
    relay("orders", to=URL, exchange="shop", group="shop", seconds=1)
    send("orders", 1)
    with caplog.at_level(logging.DEBUG), pytest.raises(ResourceAway) as failure:
        drain()
    assert "Connection refused" in str(failure.value)
    assert not RetryMessage.objects.exists()
    shown = repr(list(registrations())) + str(failure.value) + caplog.text
    assert "ss-word" not in shown
    assert "p/ss" not in shown


def test_an_error_with_the_url_or_the_password_in_its_text_is_shown_without(monkeypatch):
    def fails(*args: Any) -> None:
        raise ValueError(f"cannot parse {URL}, or p/ss-word")

    monkeypatch.setattr(brokers, "BrokerLink", fails)
    with pytest.raises(ResourceAway) as failure:
        Broker(URL, "", 1).publish([publication(0)], Answers(), time.monotonic() + 1)
    assert str(failure.value) == "ValueError: cannot parse …, or …"
    assert failure.value.__cause__ is None


def publication(number: int, **changes: Any) -> Publication:
    values = {
        "id": f"orders/0@{number}",
        "routing_key": "plain",
        "body": b"1",
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "timestamp": 0,
        "headers": {},
    }
    return Publication(**{**values, **changes})


def test_a_message_that_cannot_be_published_fails_alone_after_a_second_try(monkeypatch):
    Bound("", "", "plain")
    tried = []
    publish = brokers.BrokerLink.publish

    def fails(self, wanted, answers, until):
        tried.append([one.id[-1] for one in wanted])
        if any(one.id == "orders/0@1" for one in wanted):
            raise ValueError("cannot be encoded")
        publish(self, wanted, answers, until)

    monkeypatch.setattr(brokers.BrokerLink, "publish", fails)
    answers = Answers()
    wanted = [publication(number) for number in range(3)]
    Broker(MEMORY, "", 1).publish(wanted, answers, time.monotonic() + 1)
    assert answers.taken == {"orders/0@0", "orders/0@2"}
    assert {of: str(error) for of, error in answers.refused.items()} == {
        "orders/0@1": "ValueError: cannot be encoded"
    }
    assert tried == [["0", "1", "2"], ["0"], ["1"], ["2"]]


def test_a_lost_connection_is_made_anew_at_once_and_a_new_one_that_is_lost_is_away(monkeypatch):
    Bound("", "", "plain")
    lost: list[bool | str] = [False]
    made = []
    publish, make = brokers.BrokerLink.publish, brokers.BrokerLink.__init__

    def loses(self, wanted, answers, until):
        if lost[0]:
            lost[0] = lost[0] == "for ever"
            raise ConnectionResetError("reset")
        publish(self, wanted, answers, until)

    def counts(self, *args):
        made.append(args)
        make(self, *args)

    monkeypatch.setattr(brokers.BrokerLink, "publish", loses)
    monkeypatch.setattr(brokers.BrokerLink, "__init__", counts)
    broker = Broker(MEMORY, "", 1)

    def published(number: int) -> Answers:
        answers = Answers()
        broker.publish([publication(number)], answers, time.monotonic() + 1)
        return answers

    assert published(0).taken
    assert len(made) == 1
    lost[0] = True
    assert published(1).taken
    assert len(made) == 2
    lost[0] = "for ever"
    with pytest.raises(ResourceAway):
        published(2)


def test_a_connection_is_not_used_after_a_fork_nor_when_it_was_idle_for_long(monkeypatch):
    Bound("", "", "plain")
    broker = Broker(MEMORY, "", 1)

    def link() -> Any:
        broker.publish([publication(0)], Answers(), time.monotonic() + 1)
        return broker._own.link

    first = link()
    assert link() is first
    first._used_at -= brokers.HEARTBEAT_SECONDS + 1
    second = link()
    assert second is not first
    second.pid = os.getpid() + 1  # as in a child
    assert link() is not second
    assert second in brokers._of_parents


def test_a_project_without_kombu_is_warned_and_its_relays_wait(monkeypatch):
    relay("orders", to="amqp://host//", group="shop")
    assert not [one for one in check_settings() if one.id == "ems.W027"]
    monkeypatch.setattr("streams.checks.has_kombu", lambda: False)
    (warning,) = [one for one in check_settings() if one.id == "ems.W027"]
    assert "shop" in warning.msg
    assert "django-ems[relay]" in str(warning.hint)
    monkeypatch.setitem(__import__("sys").modules, "kombu.connection", None)
    send("orders", 1)
    with pytest.raises(ResourceAway, match="django-ems"):
        drain()
