"""A noun is the same on every face: --json of a command has what HTTP answers, by its names."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.utils import flatten

from streams import Reject, Retry, consumer, send
from streams.log.sequencer import sequence
from streams.models import ConsumerGroup, DeadMessage, Message
from streams.operate.redrives import begin
from streams.operate.replay import span_of, start
from streams.testing import drain
from tests.consuming import Process
from tests.http.conftest import Api, MakeToken

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

MAIL = "/topics/orders/groups/mail"
# What HTTP answers, the member of it that lists the noun (else it is one), and the command.
NOUNS = {
    "a group": ("/groups", "items", "ems_groups list"),
    "a group with its rates": ("/overview", "groups", "ems_groups list"),
    "a client": (MAIL, "clients", "ems_groups consumers mail"),
    "a delivery": (MAIL, "deliveries", "ems_groups deliveries --open"),
    "a held key": ("/topics/orders/groups/keyed/keys", "items", "ems_keys list"),
    "a replay": (f"{MAIL}/replays", "items.0.parts", "ems_groups replays mail"),
    "a dead letter": (f"{MAIL}/dead", "items", "ems_dead list"),
    "a letter with its body": ("/dead/{letter}", "", "ems_dead show {letter}"),
    "a redrive": ("/dead/redrives", "items", "ems_redrives list"),
    "a message": ("/topics/orders/messages", "items", "ems_messages list orders"),
    "a message with its body": ("/messages/{message}", "", "ems_messages show {message}"),
    "the way of a message": ("/messages/{message}/trace", "", "ems_messages trace {message}"),
    "the way of a place": (
        "/topics/orders/partitions/0/messages/1/trace",
        "",
        "ems_messages trace orders/0@1",
    ),
    "a topic": ("/topics", "items", "ems_topics list"),
}


@pytest.mark.parametrize("noun", NOUNS)
def test_a_noun_has_the_same_columns_and_values_on_every_face(
    noun: str, api: Api, make_token: MakeToken, run: Callable[..., str]
) -> None:
    ids = shop()
    if noun == "a held key":
        hold_keys()
    path, member, words = (text.format(**ids) for text in NOUNS[noun])
    answer = api.get(path, token=make_token("look", "read", "body", "dead"))
    assert answer.status_code == 200
    found = answer.json()
    for name in filter(None, member.split(".")):
        found = found[int(name) if name.isdecimal() else name]
    printed = json.loads(run(*words.split(), "--json"))
    assert found
    assert _like(printed, found) == found


def shop() -> dict[str, int]:
    """Leave a row of every noun, and return the ids of a message and of a dead letter."""

    @consumer("orders", group="mail")
    def mail(message: Any) -> None:
        if message.offset == 0:
            raise Reject("odd")
        if message.offset == 1:
            raise Retry(delay=60)

    for number in range(3):
        send("orders", {"n": number}, key=f"k{number}", headers={"who": "me"})
    drain()
    send("orders", 3)
    sequence("default")
    Process("mail").claim(1)
    group = ConsumerGroup.objects.get()
    start(group, span_of(group, Message.objects.get(offset=2).pk, "default"), "default")
    letter = DeadMessage.objects.get()
    begin([group], "default", rate=1, who="me")
    return {"letter": letter.pk, "message": Message.objects.get(offset=1).pk}


def hold_keys() -> None:
    """Let a second group wait for messages that have failed."""

    @consumer("orders", group="keyed", ordered="key", start="earliest")
    def keyed(message: Any) -> None:
        raise Retry(delay=60)

    drain("keyed")


def _like(printed: Any, answered: Any) -> Any:
    """Return what is printed, as far as it is answered, too; and what passes while a test looks."""
    if isinstance(answered, list):
        return [_like(*pair) for pair in zip(printed, answered, strict=True)]
    if isinstance(answered, dict):
        passing = {name for name in answered if name.endswith("_seconds") and printed[name]}
        return {
            name: value if name in passing else _like(printed[name], value)
            for name, value in answered.items()
        }
    return printed


def test_a_page_calls_a_field_what_its_model_calls_it() -> None:
    admin.autodiscover()
    others = set()
    page: Any
    for model, page in admin.site._registry.items():
        names = {one.name: one.verbose_name for one in model._meta.concrete_fields}
        for column in flatten([*page.list_display, *getattr(page, "layout", ())]):
            label: Any = getattr(column, "short_description", None)
            name: Any = getattr(column, "__name__", column)
            if label and names.get(name, label) != label:
                others.add((model.__name__, name))
    assert others == {
        ("Message", "size"),  # a list says "bytes"
        ("RetryMessage", "delivery"),  # "held by"
        ("Traffic", "messages"),  # a link to them
    }
