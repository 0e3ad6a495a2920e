"""Names of topics, groups and tags: which characters they may have."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ValidationError

from streams import Outgoing, consumer, send, send_many
from streams.errors import InvalidName
from streams.log.topics import resolve
from streams.models import ConsumerGroup, Message, Topic
from streams.operate.topics import create
from streams.rules.names import MAX_NAME, validated_name
from streams.testing import drain

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

GOOD = ["orders", "Orders.eu-1_b:x", "7", "-", "订单", "заказ", "Zoë", "हिन्दी", "x" * 127]
# The last ones: not normalised, a full-width solidus, a superscript.
BAD = ["topic/0@17", "a b", "a/b", "a@b", "a,b", "a%b", "a#b", "a'b", "😀", "a+b", "Zoe\u0308"]
BAD += ["a\uff0fb", "x²", ".", ".."]


@pytest.mark.parametrize("name", GOOD)
def test_letters_digits_and_four_signs_may_be_in_a_name(name: str) -> None:
    @consumer(name, group=name, tags=[name] if len(name) <= 64 else ())
    def handle(message: Any) -> None: ...

    send(name, 1, tag=name[:64])
    assert drain(name).done == 1
    assert ConsumerGroup.objects.get().name == Topic.objects.get().name == name
    assert Message.objects.get().tag == name[:64]


@pytest.mark.parametrize("name", BAD)
def test_a_topic_with_other_characters_is_refused(name: str) -> None:
    for make in (
        lambda: send(name, 1),
        lambda: send_many([Outgoing("fine", 1), Outgoing(name, 1)]),
        lambda: create(name, 1, "default"),
        lambda: resolve(name, "default"),
        lambda: consumer(name, group="mail"),
    ):
        with pytest.raises(InvalidName):
            make()
    with pytest.raises(ValidationError):
        Topic(name=name).full_clean()
    assert not Topic.objects.exists()


@pytest.mark.parametrize("name", BAD)
def test_a_group_or_tag_with_other_characters_is_refused(name: str) -> None:
    for make in (
        lambda: consumer("orders", group=name),
        lambda: consumer("orders", group="mail", tags=[name]),
        lambda: send("orders", 1, tag=name),
    ):
        with pytest.raises(InvalidName):
            make()
    assert not Topic.objects.exists()


def test_the_text_says_which_characters_and_which_name() -> None:
    with pytest.raises(InvalidName, match=r"A topic has letters.*'a/b' has others"):
        validated_name("a/b", "topic", MAX_NAME)
