"""Sending over HTTP: what is committed when the answer comes, and what is refused."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from streams import consumer, send
from streams.http import access
from streams.log.sequencer import sequence
from streams.models import IMMEDIATE, Message, SystemConfig, Topic
from streams.operate.topics import create
from streams.testing import drain
from tests.http.conftest import Api, MakeToken

ORDERS = "/topics/orders/messages"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def sender(api: Api, make_token: MakeToken) -> Api:
    """A client that may send to topics whose names begin with "orders"."""
    api.token = make_token("send:orders*")
    return api


def only() -> Message:
    return Message.objects.get()


def test_a_message_that_was_answered_with_201_is_committed(
    transactional_db: None, sender: Api, second_connection: Callable[..., Any]
) -> None:
    other = second_connection()
    answer = sender.post(ORDERS, {"body": {"n": 1}, "key": "A7", "tag": "paid"})
    assert answer.status_code == 201, answer.content
    sent = answer.json()
    seen = other.execute("SELECT id, body, tag FROM ems_msg")
    assert [(id_, bytes(body), tag) for id_, body, tag in seen] == [
        (sent["message_id"], b'{"n":1}', "paid")
    ]
    assert sent == {**sent, "topic": "orders", "partition": 0, "duplicate": False}
    assert only().key == "A7"


def test_a_handler_gets_what_was_sent(db: None, sender: Api, clean_registry: None) -> None:
    seen: list[Any] = []
    consumer("orders", group="mail")(lambda message: seen.append((message.body, message.headers)))
    sender.post(ORDERS, {"body": {"number": "Ä7"}, "headers": {"who": "me"}})
    drain()
    assert seen == [({"number": "Ä7"}, {"who": "me"})]


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({"body": {"a": [1, None]}}, (b'{"a":[1,null]}', "json")),
        ({"body": "plain"}, (b"plain", "text")),
        ({"body": "plain", "body_type": "text"}, (b"plain", "text")),
        ({"body": "plain", "body_type": "json"}, (b'"plain"', "json")),
        (
            {"body": base64.b64encode(b"\x00\xff").decode(), "body_type": "bytes"},
            (b"\0\xff", "bytes"),
        ),
        ({"body": None}, (b"null", "json")),
        ({}, (b"null", "json")),
    ],
)
def test_a_body_is_stored_as_the_type_says(
    sender: Api, given: dict[str, Any], stored: tuple[bytes, str]
) -> None:
    assert sender.post(ORDERS, given).status_code == 201
    assert (bytes(only().body), only().body_type) == stored


@pytest.mark.parametrize("fields", [{"delay": 90}, {"deliver_at": "2026-01-31T12:00:00.5+08:00"}])
def test_a_message_can_be_delayed(sender: Api, fields: dict[str, Any]) -> None:
    before = datetime.now(UTC)
    assert sender.post(ORDERS, {"body": 1, **fields}).status_code == 201
    due_at = only().due_at
    if "delay" in fields:
        assert timedelta(seconds=80) < due_at - before < timedelta(seconds=100)
    else:
        assert due_at == IMMEDIATE  # it is past


def test_an_instant_keeps_its_zone_and_its_microseconds(sender: Api) -> None:
    sender.post(ORDERS, {"deliver_at": "2100-01-31T12:00:00.123456+08:00"})
    assert only().due_at == datetime(2100, 1, 31, 4, 0, 0, 123456, UTC)


def test_the_partition_can_be_chosen(sender: Api) -> None:
    create("orders", 3, "default")
    assert sender.post(ORDERS, {"partition": 2}).json()["partition"] == 2


def test_a_repeated_send_with_one_key_sends_once(sender: Api) -> None:
    first = sender.post(ORDERS, {"body": 1, "dedup_key": "invoice-17"})
    again = sender.post(ORDERS, {"body": 2, "dedup_key": "invoice-17"})
    header = sender.post(ORDERS, {"body": 3}, Idempotency_Key="invoice-17")
    both = sender.post(ORDERS, {"dedup_key": "invoice-17"}, Idempotency_Key="invoice-17")
    assert [one.status_code for one in (first, again, header, both)] == [201, 200, 200, 200]
    duplicate = {**first.json(), "duplicate": True}
    assert [one.json() for one in (again, header, both)] == [duplicate] * 3
    assert only().pk == first.json()["message_id"]


def test_two_different_keys_of_one_request_are_refused(sender: Api) -> None:
    answer = sender.post(ORDERS, {"dedup_key": "a"}, Idempotency_Key="b")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert not Message.objects.exists()


def test_a_message_names_who_has_sent_it_over_http(transactional_db: None, sender: Api) -> None:
    sender.post(ORDERS, {})
    prefix = str(sender.token).split("_")[1]
    assert only().producer.startswith(f"http:{prefix}@127.0.0.1@ems-http_")


def test_a_thread_has_its_own_name_again_after_a_request(db: None, sender: Api) -> None:
    sender.post(ORDERS, {})
    own = send("orders").message_id
    assert not Message.objects.get(pk=own).producer.startswith("http:")
    assert Message.objects.exclude(pk=own).get().producer.startswith("http:")


def test_a_batch_is_sent_whole(sender: Api) -> None:
    messages = [{"topic": f"orders.{n % 2}", "body": n, "key": str(n)} for n in range(50)]
    answer = sender.post("/messages", {"messages": messages})
    assert answer.status_code == 201, answer.content
    results = answer.json()["results"]
    rows = Message.objects.in_bulk([one["message_id"] for one in results])
    assert [rows[one["message_id"]].key for one in results] == [str(n) for n in range(50)]
    assert [one["topic"] for one in results[:2]] == ["orders.0", "orders.1"]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"topic": "orders", "partition": 7}, "unknown_partition"),
        ({"topic": "orders", "body": "?", "body_type": "bytes"}, "invalid_message"),
        ({"topic": "payments"}, "forbidden"),
        ({"topic": "orders", "nobody": "knows"}, "invalid"),
    ],
)
def test_of_a_batch_with_one_wrong_message_nothing_is_sent(
    sender: Api, wrong: dict[str, Any], code: str
) -> None:
    answer = sender.post("/messages", {"messages": [{"topic": "orders"}, wrong]})
    assert answer.json()["code"] == code
    assert not Message.objects.exists()
    assert not Topic.objects.exists()


def test_a_batch_has_at_most_a_thousand_messages(sender: Api) -> None:
    for size in (0, 1001):
        answer = sender.post("/messages", {"messages": [{"topic": "orders"}] * size})
        assert answer.status_code == 422
    assert not Message.objects.exists()


def test_a_batch_has_no_key_of_its_own(sender: Api) -> None:
    answer = sender.post("/messages", {"messages": [{"topic": "orders"}]}, Idempotency_Key="a")
    assert answer.status_code == 422
    assert not Message.objects.exists()


def test_a_delayed_message_can_be_taken_back(sender: Api) -> None:
    sent = sender.post(ORDERS, {"delay": 3600}).json()["message_id"]
    assert sender.delete(f"/messages/{sent}").json() == {"outcome": "cancelled"}
    assert not Message.objects.exists()
    gone = sender.delete(f"/messages/{sent}")
    assert (gone.status_code, gone.json()["code"]) == (404, "unknown")


def test_a_visible_message_cannot_be_taken_back(sender: Api) -> None:
    sent = sender.post(ORDERS, {}).json()["message_id"]
    sequence("default")
    answer = sender.delete(f"/messages/{sent}")
    assert (answer.status_code, answer.json()["code"]) == (409, "visible")
    assert only().pk == sent


def test_only_who_may_send_to_a_topic_takes_a_message_of_it_back(
    sender: Api, make_token: MakeToken
) -> None:
    sent = sender.post(ORDERS, {"delay": 3600}).json()["message_id"]
    other = make_token("send:mail")
    answers = [sender.delete(f"/messages/{pk}", token=other) for pk in (sent, sent + 1)]
    assert [one.status_code for one in answers] == [404, 404]  # an id says nothing of its topic
    assert only().pk == sent


def test_a_message_of_another_namespace_is_unknown(
    sender: Api, make_token: MakeToken, ems_settings: Callable[..., None]
) -> None:
    sent = sender.post(ORDERS, {"delay": 3600}).json()["message_id"]
    ems_settings(NAMESPACE="blue")
    access._known.clear()
    assert sender.delete(f"/messages/{sent}").status_code == 401  # so is the token
    assert sender.delete(f"/messages/{sent}", token=make_token("send")).status_code == 404


@pytest.mark.parametrize(
    ("message", "status", "code"),
    [
        ({"key": ""}, 422, "invalid_name"),
        ({"tag": "a b"}, 422, "invalid_name"),
        ({"key": "k" * 256}, 422, "invalid_name"),
        ({"delay": -1}, 422, "invalid_message"),
        ({"delay": 1, "deliver_at": "2026-01-31T12:00:00Z"}, 422, "invalid_message"),
        ({"deliver_at": "2026-01-31T12:00:00"}, 422, "invalid"),
        ({"deliver_at": "2026-13-31T12:00:00Z"}, 422, "invalid"),
        ({"deliver_at": 1769860800}, 422, "invalid"),
        ({"deliver_at": "0001-01-01T00:00:00+23:59"}, 422, "invalid_message"),
        ({"partition": 9}, 404, "unknown_partition"),
        ({"partition": "0"}, 422, "invalid"),
        ({"partition": 10**30}, 404, "unknown_partition"),
        ({"dedup_window": 60}, 422, "invalid_message"),
        ({"headers": {"a": 1}}, 422, "invalid"),
        ({"body": "\ud800"}, 422, "not_serializable"),
        ({"body": float("nan")}, 422, "not_serializable"),
        ({"body": 1, "body_type": "text"}, 422, "invalid_message"),
        ({"body": "a", "body_type": "pickle"}, 422, "invalid"),
        ({"key": "\ud800"}, 422, "invalid"),
        ({"body": "x" * 2_000_001}, 413, "message_too_large"),
        (b"{", 400, "malformed"),
        (b"\xff", 400, "malformed"),
        (b"[" * 100_000, 400, "malformed"),
        (b"1", 422, "invalid"),
        (b"", 422, "invalid"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_anything_is_written(
    sender: Api, message: Any, status: int, code: str
) -> None:
    SystemConfig.objects.create(name="msgMaxSizeInBytes", value=2_000_000)
    answer = sender.post(ORDERS, message)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.content
    assert answer["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["type"].endswith(code)
    assert problem["title"]
    assert problem["detail"]
    assert not Message.objects.exists()


def test_a_topic_that_takes_nothing_is_a_conflict(sender: Api) -> None:
    Topic.objects.create(name="orders", access="read-only")
    answer = sender.post(ORDERS, {})
    assert (answer.status_code, answer.json()["code"]) == (409, "topic_denied")


def test_an_unknown_topic_is_not_found_where_it_is_not_created(sender: Api) -> None:
    SystemConfig.objects.create(name="autoCreateTopic", value=False)
    answer = sender.post(ORDERS, {})
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_topic")


def test_the_trace_of_a_request_goes_on_in_its_messages(sender: Api) -> None:
    sender.post(ORDERS, {"headers": {"who": "me"}}, traceparent=TRACEPARENT, tracestate="a=b")
    given = {"who": "me", "traceparent": TRACEPARENT, "tracestate": "a=b"}
    assert only().headers == given
    Message.objects.all().delete()
    own = {"traceparent": TRACEPARENT.replace("b7", "c8")}
    sender.post(ORDERS, {"headers": own}, traceparent=TRACEPARENT)
    assert only().headers == own
    Message.objects.all().delete()
    sender.post(ORDERS, {}, traceparent="00-nonsense", tracestate="a=b")
    assert only().headers in (None, {})
