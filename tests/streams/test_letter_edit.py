"""An edited dead letter: one group sees it, at its offset; the log and other groups do not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from streams import ReceivedMessage, Reject, consumer, send
from streams.body import decode
from streams.conf import database
from streams.consume import registry, typed
from streams.consume.outcome.dead_letter import give_up, redrive
from streams.errors import InvalidBody, InvalidMessage, InvalidName, MessageTooLarge, StreamsError
from streams.models import (
    DeadMessage,
    Delivery,
    LetterEdit,
    Message,
    Partition,
    RetryMessage,
)
from streams.observe.audit.walk import audit
from streams.operate.edited_letter import EditableContent, difference, edit_and_redrive
from streams.operate.reset import Reset, towards
from streams.operate.target import Target
from streams.retain.old_rows import edits
from streams.testing import drain
from tests.sessions import Threads

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]


class Shop:
    """A group "bill" that takes only what has an amount, and a group "mail" that takes all."""

    def __init__(self) -> None:
        self.billed: list[Any] = []
        self.mailed: list[Any] = []
        self.unavailable = False

    def bill(self, message):
        if self.unavailable:
            raise ConnectionError
        if "amount" not in message.body:
            raise Reject("no amount")
        self.billed.append(message)

    def mail(self, message):
        self.mailed.append(message.offset)


@pytest.fixture
def shop(clean_registry: None) -> Shop:
    """One dead letter of "bill", at offset 1 of 3."""
    shop = Shop()
    consumer("orders", group="bill", max_retries=1)(shop.bill)
    consumer("orders", group="mail")(shop.mail)
    for body in ({"amount": 1}, {"amonut": 2, "name": "Zoë"}, {"amount": 3}):
        send("orders", body, key="k", tag="web", headers={"trace": "a"})
    drain()
    return shop


def the_letter() -> DeadMessage:
    return DeadMessage.objects.get()


def edited(letter: DeadMessage, **changes: str) -> EditableContent:
    return replace(EditableContent.of(letter), **changes)


def repaired(letter: DeadMessage) -> EditableContent:
    return edited(letter, body='{"amount": 2, "name": "Zoë"}')


def findings() -> list[str]:
    return [str(finding) for finding in audit(database())]


def is_purged() -> None:
    Partition.objects.update(first_offset=3)
    Message.objects.all().delete()


@pytest.mark.parametrize("purged", [False, True])
def test_the_group_gets_the_edited_copy_at_its_offset_and_no_other_group_does(shop, purged):
    stored = list(Message.objects.order_by("offset").values_list())
    if purged:
        is_purged()
    assert edit_and_redrive(the_letter(), repaired(the_letter()), "ann")
    drain()
    message = shop.billed[-1]
    assert (message.body, message.offset, message.attempt) == ({"amount": 2, "name": "Zoë"}, 1, 1)
    assert (message.key, message.tag, message.headers) == ("k", "web", {"trace": "a"})
    assert (message.sequenced_at is None) == purged
    assert [one.offset for one in shop.billed] == [0, 2, 1]
    assert shop.mailed == [0, 1, 2]
    if not purged:
        assert list(Message.objects.order_by("offset").values_list()) == stored
    assert not RetryMessage.objects.exists()
    assert findings() == []


def test_key_tag_headers_and_type_can_be_edited_too(shop):
    changes = {"key": "", "tag": "repaired", "headers": '{"by": "ann"}'}
    assert edit_and_redrive(the_letter(), edited(the_letter(), body='["amount"]', **changes), "ann")
    drain()
    message = shop.billed[-1]
    assert (message.key, message.tag, message.headers) == (None, "repaired", {"by": "ann"})
    assert message.body == ["amount"]
    letter = the_letter()
    assert (letter.size, letter.redriven_at) == (len(letter.body), letter.edited_at)


@pytest.mark.parametrize(
    ("body_type", "typed", "value"),
    [("text", "the amount\nis 2", "the amount\nis 2"), ("bytes", "YW1v\ndW50", b"amount")],
)
def test_text_is_stored_as_typed_and_bytes_from_base64(shop, body_type, typed, value):
    assert edit_and_redrive(
        the_letter(), edited(the_letter(), body=typed, body_type=body_type), "ann"
    )
    letter = the_letter()
    assert decode(bytes(letter.body), letter.body_type) == value
    again = EditableContent.of(letter)
    assert again.checked(letter).body == bytes(letter.body)  # what is shown is what is stored


@dataclass
class Bill:
    amount: int


def test_an_edited_body_is_of_the_type_that_the_consumer_has(shop):
    registry._registered.clear()
    billed: list[ReceivedMessage[Bill]] = []
    consumer("orders", group="bill", body=Bill)(billed.append)
    wrong = edited(the_letter(), body='{"amount": "two"}')
    with pytest.raises(InvalidBody, match=r"^\$\.amount: expected int, got str$"):
        edit_and_redrive(the_letter(), wrong, "ann")
    assert the_letter().edited_at is None
    assert not LetterEdit.objects.exists()
    assert edit_and_redrive(the_letter(), repaired(the_letter()), "ann")
    assert drain("bill").done == 1
    assert billed[0].body == Bill(2)


def test_where_the_consumers_cannot_be_imported_an_edited_body_is_not_checked(
    shop, monkeypatch, caplog
):
    def fail():
        raise ImportError("No module named 'torch'")

    registry._registered.clear()
    monkeypatch.setattr(typed, "autodiscover", fail)
    assert edit_and_redrive(the_letter(), edited(the_letter(), body="[]"), "ann")
    assert "is not checked: No module named 'torch'" in caplog.text


def test_what_it_was_is_kept_with_who_and_when(shop):
    before = the_letter()
    edit_and_redrive(before, edited(before, body='{"amonut": 3}', tag="x"), "ann")
    drain()  # it fails again, and waits again, as it was edited
    second = the_letter()
    assert (second.pk, second.redriven_at) == (before.pk, None)
    assert decode(bytes(second.body), "json") == {"amonut": 3}
    edit_and_redrive(second, repaired(second), "bob")
    drain()
    first, last = LetterEdit.objects.order_by("pk")
    assert (first.who, last.who) == ("ann", "bob")
    assert decode(bytes(first.body), first.body_type) == {"amonut": 2, "name": "Zoë"}
    assert (first.tag, last.tag, first.headers) == ("web", "x", {"trace": "a"})
    assert before.died_at < first.at < last.at
    assert [one.offset for one in shop.billed] == [0, 2, 1]
    assert findings() == []


def test_an_attempt_that_fails_is_followed_by_one_with_the_same_edited_copy(shop):
    shop.unavailable = True
    edit_and_redrive(the_letter(), repaired(the_letter()), "ann")
    drain()
    assert RetryMessage.objects.get().attempt == 2
    shop.unavailable = False
    RetryMessage.objects.update(due_at=the_letter().died_at)
    drain()
    assert shop.billed[-1].body["amount"] == 2
    assert DeadMessage.objects.waiting().count() == 0
    assert findings() == []


def test_a_retry_that_is_given_up_leaves_the_edited_letter_waiting(shop):
    edit_and_redrive(the_letter(), repaired(the_letter()), "ann")
    assert give_up(RetryMessage.objects.get(), ValueError("no attempts left"))
    letter = the_letter()
    assert (letter.redriven_at, letter.error) == (None, "no attempts left")
    assert decode(bytes(letter.body), "json")["amount"] == 2


@pytest.mark.parametrize("meanwhile", [redrive, DeadMessage.discard])
def test_a_letter_that_somebody_redrove_or_discarded_meanwhile_is_refused(shop, meanwhile):
    seen = the_letter()
    meanwhile(the_letter())
    rows = list(RetryMessage.objects.values())
    assert not edit_and_redrive(seen, repaired(seen), "ann")
    assert not LetterEdit.objects.exists()
    assert list(RetryMessage.objects.values()) == rows


def test_a_letter_that_somebody_else_edited_and_that_failed_again_is_refused(shop):
    seen = the_letter()
    edit_and_redrive(the_letter(), edited(seen, body="{}"), "bob")
    drain()
    assert the_letter().redriven_at is None
    assert not edit_and_redrive(seen, repaired(seen), "ann")
    assert LetterEdit.objects.get().who == "bob"


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_of_two_who_edit_at_once_one_wins(shop, in_thread: Threads):
    seen = the_letter()
    names = ("ann", "bob", "eve")
    running = [in_thread(edit_and_redrive, seen, edited(seen, tag=name), name) for name in names]
    assert sorted(one.result(timeout=30) for one in running) == [False, False, True]
    kept = LetterEdit.objects.get()
    assert (kept.tag, the_letter().tag) == ("web", kept.who)
    assert RetryMessage.objects.count() == 1


@pytest.mark.parametrize(
    ("changes", "error", "told"),
    [
        ({"body": '{\n  "amount": 2,,\n}'}, InvalidMessage, "line 2, column 15"),
        ({"body": ""}, InvalidMessage, "line 1, column 1"),
        ({"body": "[" * 100_000}, InvalidMessage, "body"),
        ({"body": "9" * 5000}, InvalidMessage, "digits"),
        ({"body": "NaN"}, InvalidMessage, "nan"),
        ({"body": "no base64!", "body_type": "bytes"}, InvalidMessage, "base64"),
        ({"headers": "[1]"}, InvalidMessage, "strings to strings"),
        ({"headers": '{"a": 1}'}, InvalidMessage, "strings to strings"),
        ({"headers": "{"}, InvalidMessage, "headers: line 1, column 2"),
        ({"tag": "a b"}, InvalidName, "tag"),
        ({"key": "k" * 256}, InvalidName, "key"),
        ({"body": '"' + "x" * 5_000_000 + '"'}, MessageTooLarge, "msgMaxSizeInBytes"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_anything_is_written(shop, changes, error, told):
    seen = the_letter()
    with pytest.raises(error, match=told) as raised:
        edit_and_redrive(seen, edited(seen, **changes), "ann")
    assert isinstance(raised.value, StreamsError)
    assert len(str(raised.value)) < 300
    assert the_letter().redriven_at is None
    assert not LetterEdit.objects.exists()


def test_a_reset_keeps_the_edited_copy_which_the_log_does_not_have(shop):
    group = the_letter().group
    edit_and_redrive(the_letter(), repaired(the_letter()), "ann")
    Reset(group, towards(Target.parse("earliest")), database()).run()
    assert RetryMessage.objects.get().dead_letter_id == the_letter().pk
    drain()
    assert {"amount": 2, "name": "Zoë"} in [message.body for message in shop.billed]


def test_a_difference_shows_what_changes(shop):
    letter = the_letter()
    lines = list(
        difference(EditableContent.of(letter), edited(letter, body='{\n  "amount": 2\n}', tag="x"))
    )
    assert "-tag: web" in lines
    assert "+tag: x" in lines
    assert '-  "amonut": 2,' in lines
    assert '+  "amount": 2' in lines
    assert not list(difference(EditableContent.of(letter), EditableContent.of(letter)))


def test_edits_are_deleted_with_their_letter(shop):
    letter = the_letter()
    edit_and_redrive(letter, edited(letter, body="{}"), "ann")
    drain()
    assert list(edits(database())) == []
    assert the_letter().discard()
    assert not LetterEdit.objects.exists()
    LetterEdit.objects.create(letter_id=letter.pk, group=letter.group, who="x", body=b"1", size=1)
    assert sum(edits(database())) == 1
    assert not LetterEdit.objects.exists()


def test_deliveries_say_what_became_of_it(shop):
    edit_and_redrive(the_letter(), edited(the_letter(), body="{}"), "ann")
    drain()
    last = Delivery.objects.filter(kind="retry").order_by("-pk")[0]
    assert (last.failed, last.dead, last.missing) == (1, 1, 0)
