"""What an operator does with dead letters is done once, also if the reply to its COMMIT is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streams import Reject, consumer, send
from streams.consume.outcome.dead_letter import redrive
from streams.models import ConsumerGroup, DeadMessage, LetterEdit, Redrive, RetryMessage
from streams.operate.edited_letter import EditableContent, edit_and_redrive
from streams.operate.redrives import begin
from streams.testing import drain
from tests.proxy import Proxy

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.mysql,
    pytest.mark.usefixtures("clean_registry"),
]


@pytest.fixture
def letter(transactional_db: None) -> DeadMessage:
    @consumer("orders", group="mail")
    def mail(message: Any) -> None:
        raise Reject("no")

    send("orders", {"n": 1})
    drain()
    return DeadMessage.objects.get()


def test_an_edit_whose_commit_was_not_confirmed_is_done_once_and_said_to_be_done(
    letter: DeadMessage, proxied: Proxy
) -> None:
    content = replace(EditableContent.of(letter), body='{"n": 2}')
    proxied.lose_reply_to(b"COMMIT")
    assert edit_and_redrive(letter, content, "ann")
    assert proxied.fired == [b"COMMIT"]
    (edit,) = LetterEdit.objects.all()
    assert (edit.who, bytes(edit.body)) == ("ann", b'{"n":1}')
    assert RetryMessage.objects.get().dead_letter_id == letter.pk
    assert bytes(DeadMessage.objects.get().body) == b'{"n":2}'
    assert not edit_and_redrive(letter, content, "bob")


def test_a_single_redrive_whose_commit_was_not_confirmed_is_done_once_and_said_to_be_done(
    letter: DeadMessage, proxied: Proxy
) -> None:
    proxied.lose_reply_to(b"COMMIT")
    assert redrive(letter)
    assert proxied.fired == [b"COMMIT"]
    assert RetryMessage.objects.get().dead_letter_id == letter.pk
    assert not redrive(letter)


def test_a_redrive_whose_commit_was_not_confirmed_begins_once(
    letter: DeadMessage, proxied: Proxy
) -> None:
    proxied.lose_reply_to(b"COMMIT")
    row = begin([ConsumerGroup.objects.get()], "default", rate=1.0, who="ann")
    assert proxied.fired == [b"COMMIT"]
    assert Redrive.objects.get().pk == row.pk
