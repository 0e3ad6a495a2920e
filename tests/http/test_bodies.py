"""Bodies in answers are what is stored, and one that cannot be answered with harms no other."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from streams import Reject, consumer, prepare, send
from streams.body import encode
from streams.consume.outcome.dead_letter import redrive
from streams.deliver import reading
from streams.errors import InvalidMessage, NotSerializable
from streams.http.routes import pull as routes
from streams.log.sequencer import sequence
from streams.models import Cursor, DeadMessage, Message, PreparedRow, RetryMessage
from streams.models.with_body import stored
from streams.operate.edited_letter import EditableContent, edit_and_redrive
from streams.rules.stored_body import LOGICAL
from streams.testing import advance, drain
from tests.http.conftest import Api
from tests.large_bodies import RAW, VALUES
from tests.preparing import CHECKER, answering

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

GROUP = "/topics/orders/groups/mail"
LOG = "/topics/orders/partitions/0/messages"
LARGE = {"items": [{"sku": f"A-{n}", "price": "49.90"} for n in range(400)]}
# As SQL by hand may have written it.
STORED_DEEP = b"[" * 5000 + b"]" * 5000


def nested(levels: int) -> Any:
    value: Any = 1
    for _level in range(levels):
        value = [value]
    return value


@pytest.fixture(autouse=True)
def caller(api: Api, make_token: Callable[..., str]) -> None:
    rights = ("send:*", "consume:*/*", "read:*", "body:*", "dead:*/*", "prepare:*", "check:*")
    api.token = make_token(*rights)


def sent_by_code(body: Any) -> None:
    send("orders", body)


def prepared_by_code(body: Any) -> None:
    prepare("orders", body, biz="shop", biz_key="A7", checker=CHECKER)


def edited(body: Any) -> None:
    consumer("orders", group="mail")(reject)
    send("orders", 1)
    drain()
    edit_and_redrive(
        DeadMessage.objects.get(), EditableContent(json.dumps(body), "json", "", "", ""), "ada"
    )
    assert DeadMessage.objects.get().edited_at


def reject(message: Any) -> None:
    raise Reject("no")


@pytest.mark.parametrize("way", [sent_by_code, prepared_by_code, edited])
def test_a_body_has_at_most_64_levels_however_it_comes_in(way: Callable[[Any], None]) -> None:
    answering(None)
    for body in (nested(65), {"a": [{"b": nested(62)}]}):
        with pytest.raises(NotSerializable, match="more than 64 levels"), transaction.atomic():
            way(body)
    assert not PreparedRow.objects.exists()
    way(nested(64))


@pytest.mark.parametrize("path", ["/topics/orders/messages", "/messages", "/prepared"])
@pytest.mark.parametrize("levels", [65, 300])
def test_a_body_over_http_has_at_most_64_levels(api: Api, path: str, levels: int) -> None:
    answering(None)

    def posted(body: Any) -> Any:
        content = {
            "/topics/orders/messages": {"body": body, "body_type": "json"},
            "/messages": {"messages": [{"topic": "orders", "body": body}]},
            "/prepared": {
                "biz": "shop",
                "biz_key": "A7",
                "checker": CHECKER,
                "topic": "orders",
                "body": body,
            },
        }
        return api.post(path, content[path])

    answer = posted(nested(levels))
    assert (answer.status_code, answer.json()["code"]) == (422, "not_serializable")
    assert "64 levels" in answer.json()["detail"]
    assert not Message.objects.exists()
    assert not PreparedRow.objects.exists()
    assert posted(nested(64)).status_code == 201


def test_many_values_beside_each_other_are_not_deep() -> None:
    with pytest.raises(InvalidMessage):
        send("orders", [[1]] * 1000 + [nested(64)])
    assert send("orders", [[{}]] * 1000).message_id


def test_what_is_stored_is_passed_through_however_deep_it_is(api: Api) -> None:
    assert api.put(GROUP, {}).status_code == 201
    for body in ("innocent", {"n": 1}, b"\xff"):
        send("orders", body)
    deep = send("orders", []).message_id
    Message.objects.filter(pk=deep).update(body=STORED_DEEP)
    sequence("default")
    for answer in (
        api.post(f"{GROUP}/pull", {"client": "one"}),
        api.get(f"{LOG}?from=0"),
    ):
        assert answer.status_code == 200
        text = answer.content.decode()
        assert STORED_DEEP.decode() in text
        found = json.loads(text.replace(STORED_DEEP.decode(), "[]"))
        messages = (
            found["deliveries"][0]["messages"] if "deliveries" in found else found["messages"]
        )
        assert [one["body"] for one in messages] == ["innocent", {"n": 1}, "/w==", []]
    assert STORED_DEEP.decode() in api.get(f"/messages/{deep}").content.decode()
    assert STORED_DEEP.decode() in api.get(f"{LOG}/3").content.decode()


def test_a_dead_letter_is_shown_however_deep_it_is(api: Api) -> None:
    consumer("orders", group="mail")(reject)
    send("orders", 1)
    drain()
    letter = DeadMessage.objects.get()
    assert api.get(f"/dead/{letter.pk}").json()["body"] == 1
    DeadMessage.objects.update(body=STORED_DEEP)
    assert STORED_DEEP.decode() in api.get(f"/dead/{letter.pk}").content.decode()


def test_without_the_right_a_body_is_null(api: Api, make_token: Callable[..., str]) -> None:
    message = send("orders", {"n": 1}).message_id
    api.token = make_token("read:orders")
    shown = api.get(f"/messages/{message}").json()
    assert (shown["has_body"], shown["body"]) == (False, None)


def test_a_claim_whose_answer_cannot_be_built_is_given_back(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert api.put(GROUP, {}).status_code == 201
    send("orders", 1)
    sequence("default")
    with monkeypatch.context() as patch:

        def broken(*args: Any) -> Any:
            raise ValueError

        patch.setattr(routes, "message_out", broken)
        for hold in (0, 0.1):
            answer = api.post(f"{GROUP}/pull", {"client": "one", "hold": hold})
            assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    (delivery,) = api.post(f"{GROUP}/pull", {"client": "two"}).json()["deliveries"]
    assert delivery["attempt"] == 1
    assert [one["body"] for one in delivery["messages"]] == [1]


def test_a_compressed_body_is_answered_as_it_was_sent(api: Api) -> None:
    assert api.put(GROUP, {}).status_code == 201
    ids = [send("orders", value).message_id for value in VALUES]
    assert Message.objects.filter(body_type__in=LOGICAL).count() == 12
    sequence("default")
    shown = [b64encode(v).decode() if isinstance(v, bytes) else v for v in VALUES]
    types = [body_type for _raw, body_type in RAW]

    def told(messages: Any) -> list[tuple[Any, str]]:
        return [(one["body"], one["body_type"]) for one in messages]

    expected = list(zip(shown, types, strict=True))
    assert told(api.get(f"/messages/{one}").json() for one in ids) == expected
    assert told(api.get(f"{LOG}?from=0&limit=100").json()["messages"]) == expected
    pulled = api.post(f"{GROUP}/pull", {"client": "one", "batch": 100}).json()["deliveries"]
    assert told(one for delivery in pulled for one in delivery["messages"]) == expected


def test_the_body_of_a_letter_and_a_body_over_http_may_be_compressed(api: Api) -> None:
    consumer("orders", group="mail")(reject)
    for value in VALUES:
        if isinstance(value, bytes):
            content: Any = {"body": b64encode(value).decode(), "body_type": "bytes"}
        else:
            content = {"body": value}
        assert api.post("/topics/orders/messages", content).status_code == 201
    drain()
    letters = list(DeadMessage.objects.order_by("offset"))
    assert [(bytes(one.body), one.body_type) for one in letters] == RAW
    assert DeadMessage.objects.filter(body_type__in=LOGICAL).count() == 12
    for letter, value in zip(letters, VALUES, strict=True):
        found = api.get(f"/dead/{letter.pk}").json()
        assert found["body"] == (b64encode(value).decode() if isinstance(value, bytes) else value)
        assert found["body_type"] == letter.body_type


def with_damaged(*damaged: int, count: int = 4, **options: Any) -> list[int]:
    """Send and sequence ``count`` messages; those at the offsets ``damaged`` cannot be read."""
    ids = [send("orders", LARGE, **options).message_id for _ in range(count)]
    for offset in damaged:
        Message.objects.filter(pk=ids[offset]).update(body=b"no zlib")
    sequence("default")
    return ids


def handed_out(api: Api, **options: Any) -> list[int]:
    answer = api.post(f"{GROUP}/pull", {"client": "one", **options})
    assert answer.status_code == 200, answer.content
    messages = [one for found in answer.json()["deliveries"] for one in found["messages"]]
    assert all(message["body"] == LARGE for message in messages)
    return [message["offset"] for message in messages]


@pytest.mark.parametrize("damaged", [(0,), (2,), (0, 1, 3), (3,), (0, 1, 2, 3)])
def test_a_damaged_body_in_a_pull_fails_alone(api: Api, damaged: tuple[int, ...]) -> None:
    assert api.put(GROUP, {"max_retries": 0}).status_code == 201
    with_damaged(*damaged)
    assert handed_out(api) == [offset for offset in range(4) if offset not in damaged]
    letters = DeadMessage.objects.order_by("offset").values_list("offset", "error_class")
    assert [*letters] == [(offset, "streams.rules.errors.DamagedBody") for offset in damaged]
    assert all(
        one.error.startswith("The stored body is damaged") for one in DeadMessage.objects.all()
    )


def test_what_comes_after_damaged_bodies_is_handed_out_however_little_is_read_at_once(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "CLAIM_BYTES", 1)
    assert api.put(GROUP, {"max_retries": 0}).status_code == 201
    with_damaged(0, 1)
    assert handed_out(api) == [2, 3]
    assert DeadMessage.objects.count() == 2


def test_a_damaged_body_in_a_pull_is_tried_again_before_it_is_dead(api: Api) -> None:
    assert api.put(GROUP, {"max_retries": 1}).status_code == 201
    ids = with_damaged(1, count=2)
    assert handed_out(api) == [0]
    retry = RetryMessage.objects.get()
    assert (retry.offset, retry.attempt) == (1, 2)
    advance(timedelta(hours=1))
    assert handed_out(api) == []
    assert DeadMessage.objects.get().attempts == 2
    # A repaired one is handed out.
    Message.objects.filter(pk=ids[1]).update(**stored(encode(LARGE)[0], "json"))
    DeadMessage.objects.update(**stored(encode(LARGE)[0], "json"))
    assert redrive(DeadMessage.objects.get())
    assert handed_out(api) == [1]


def test_a_damaged_body_blocks_an_ordered_group_as_any_failure_does(api: Api) -> None:
    assert api.put(GROUP, {"max_retries": 1, "ordered": True}).status_code == 201
    with_damaged(1, count=3)
    answer = api.post(f"{GROUP}/pull", {"client": "one"}).json()["deliveries"][0]
    assert [one["offset"] for one in answer["messages"]] == [0]
    ack = {"receipt": answer["receipt"], "results": [{"offset": 0}]}
    assert api.post("/deliveries/ack", ack).status_code == 200
    assert handed_out(api) == []
    cursor = Cursor.objects.get()
    assert (cursor.next_offset, cursor.attempt) == (1, 2)
    advance(timedelta(hours=1))
    assert handed_out(api) == [2]
    assert DeadMessage.objects.get().offset == 1


def test_text_that_is_not_utf_8_in_a_pull_fails_alone(api: Api) -> None:
    assert api.put(GROUP, {"max_retries": 0}).status_code == 201
    ids = with_damaged(count=2)
    Message.objects.filter(pk=ids[0]).update(body=b"\xff", body_type="text")
    assert handed_out(api) == [1]
    assert DeadMessage.objects.get().error_class == "UnicodeDecodeError"
    first, second = api.get(f"{LOG}?from=0").json()["messages"]
    assert (first["damaged"], first["body"]) == (True, None)
    assert (second["damaged"], second["body"]) == (False, LARGE)


def test_a_message_with_a_damaged_body_is_shown_without_it(api: Api) -> None:
    ids = with_damaged(1, count=3)
    read = api.get(f"{LOG}?from=0").json()["messages"]
    assert [one["damaged"] for one in read] == [False, True, False]
    assert [one["body"] for one in read] == [LARGE, None, LARGE]
    for path in (f"/messages/{ids[1]}", f"{LOG}/1"):
        shown = api.get(path).json()
        assert (shown["has_body"], shown["damaged"], shown["body"]) == (True, True, None)
        assert shown["size"] == len(encode(LARGE)[0])
    assert api.get(f"/messages/{ids[0]}").json()["damaged"] is False
    assert api.get(f"/messages/{ids[1]}/trace").status_code == 200
    assert len(api.get("/topics/orders/messages").json()["items"]) == 3


def test_a_letter_with_a_damaged_body_is_shown_without_it(api: Api) -> None:
    consumer("orders", group="mail", max_retries=0)(reject)
    with_damaged(1, count=2)
    drain()
    letters = DeadMessage.objects.order_by("offset")
    shown = [api.get(f"/dead/{letter.pk}").json() for letter in letters]
    assert [one["damaged"] for one in shown] == [False, True]
    assert [one["body"] for one in shown] == [LARGE, None]
