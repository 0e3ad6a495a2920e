"""Names of topics, groups and tags: what a new one may have, and that older ones keep working."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from streams import Outgoing, Reject, consumer, send, send_many
from streams.consume.outcome.dead_letter import redrive
from streams.consume.subscription import subscribe
from streams.errors import InvalidName, UnknownTopic
from streams.models import ConsumerGroup, DeadMessage, Message, SystemConfig, Topic
from streams.names import MAX_NAME, valid_new_name
from streams.operate.topics import create
from streams.testing import drain, sent
from tests.consuming import registered

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

GOOD = ["orders", "Orders.eu-1_b:x", "7", "-", "订单", "заказ", "Zoë", "हिन्दी", "x" * 127]
# The last ones: not normalised, a full-width solidus, a superscript.
BAD = ["topic/0@17", "a b", "a/b", "a@b", "a,b", "a%b", "a#b", "a'b", "😀", "a+b", "Zoe\u0308"]
BAD += ["a\uff0fb", "x²", ".", ".."]

# Names that earlier versions took.
TOPIC, GROUP = "shop/0@17 ü!", "mail/eu, 1"


@pytest.mark.parametrize("name", GOOD)
def test_letters_digits_and_four_signs_may_be_in_a_new_name(name: str) -> None:
    @consumer(name, group=name, tags=[name] if len(name) <= 64 else ())
    def handle(message: Any) -> None: ...

    send(name, 1, tag=name[:64])
    assert drain(name).done == 1
    assert ConsumerGroup.objects.get().name == Topic.objects.get().name == name
    assert Message.objects.get().tag == name[:64]


@pytest.mark.parametrize("name", BAD)
def test_a_new_topic_with_other_characters_is_refused(name: str) -> None:
    for make in (
        lambda: send(name, 1),
        lambda: send_many([Outgoing("fine", 1), Outgoing(name, 1)]),
        lambda: create(name, 1, "default"),
    ):
        with pytest.raises(InvalidName):
            make()
    with pytest.raises(ValidationError):
        Topic(name=name).full_clean()
    assert not Topic.objects.exists()


@pytest.mark.parametrize("name", BAD)
def test_a_new_group_or_tag_with_other_characters_is_refused(name: str) -> None:
    create("orders", 1, "default")
    consumer("orders", group=name)(print)
    with pytest.raises(InvalidName):
        subscribe(registered("orders", name), "default")
    with pytest.raises(InvalidName):
        send("orders", 1, tag=name)
    assert not ConsumerGroup.objects.exists()
    assert not Message.objects.exists()


def test_where_topics_are_not_created_it_is_only_unknown() -> None:
    SystemConfig.objects.create(name="autoCreateTopic", value=False)
    with pytest.raises(UnknownTopic):
        send(TOPIC, 1)


def test_the_text_says_which_characters_and_which_name() -> None:
    with pytest.raises(InvalidName, match=r"A new topic has letters.*'a/b' has others"):
        valid_new_name("a/b", "topic", MAX_NAME)


# -- older names --


@pytest.fixture
def older() -> ConsumerGroup:
    """A topic and a group of an earlier version, with a message done and a dead letter."""
    Topic.objects.create(name=TOPIC)

    @consumer(TOPIC, group=GROUP)
    def handle(message: Any) -> None:
        if message.body == "bad":
            raise Reject("no")

    consumer(TOPIC, group="mail")(handle)
    group = subscribe(registered(TOPIC, "mail"), "default")
    ConsumerGroup.objects.update(name=GROUP)
    send_many([Outgoing(TOPIC, "good"), Outgoing(TOPIC, "bad")])
    result = drain(GROUP)
    assert (result.done, result.dead) == (1, 1)
    group.name = GROUP
    return group


def test_an_older_topic_is_sent_to_and_consumed(older: ConsumerGroup) -> None:
    send(TOPIC, "one more")
    assert drain(GROUP).done == 1
    redrive(DeadMessage.objects.get())
    assert drain(GROUP).dead == 1
    assert len(sent(TOPIC)) == 3
    older.topic.full_clean()  # as the form of the admin does


def command(*words: str) -> str:
    out = StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


def test_the_commands_take_an_older_name(older: ConsumerGroup) -> None:
    command("ems_send", TOPIC, "by hand", "--text")
    assert TOPIC in command("ems_topics", "list")
    assert GROUP in command("ems_groups", "list", "--topic", TOPIC)
    assert "no" in command("ems_messages", "trace", f"{TOPIC}/0@1")
    assert json.loads(command("ems_messages", "list", TOPIC, "--json"))
    command("ems_groups", "pause", GROUP)
    command("ems_groups", "resume", GROUP)
    part = ("--partition", "0", "--from", "0", "--to", "1")
    command("ems_groups", "replay", GROUP, *part, "--yes")
    assert TOPIC in command("ems_dead", "list", "--group", GROUP)
    command("ems_topics", "grow", TOPIC, "--partitions", "2", "--yes")
    assert Topic.objects.get().partitions.count() == 2
    command("ems_topics", "retire", TOPIC, "--yes")
    command("ems_topics", "delete", TOPIC, "--force")
    assert not Topic.objects.exists()


def test_the_admin_shows_and_finds_an_older_name(
    older: ConsumerGroup, admin_client: Client
) -> None:
    for model in ("topic", "consumergroup", "message", "deadmessage", "cursor", "delivery"):
        page = admin_client.get(reverse(f"admin:ems_{model}_changelist"))
        assert page.status_code == 200
    change = reverse("admin:ems_topic_change", args=[older.topic_id])
    page = admin_client.get(change)
    assert "shop/0@17 ü!" in page.content.decode()
    place = {"q": f"{TOPIC}/0@1"}
    found = admin_client.get(reverse("admin:ems_message_changelist"), place, follow=True)
    assert found.status_code == 200
    (change, _status) = found.redirect_chain[-1]
    assert change.endswith(f"/{Message.objects.get(offset=1).pk}/change/")
