"""The page that rehearses messages, from the list of groups and from that of the dead letters."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from streams import consumer
from streams.admin.verbs import rehearse
from streams.consume import registry
from streams.models import ConsumerGroup, DeadMessage, Message
from tests.admin.conftest import action, messages
from tests.admin.test_resets import error_below, page
from tests.admin.world import XSS, World, snapshot
from tests.hostapp.models import Order

pytestmark = [pytest.mark.django_db(databases=["default", "other"])]

LETTERS = reverse("admin:ems_deadmessage_changelist")


@pytest.fixture
def fixed(world: World) -> ConsumerGroup:
    """The group of three dead letters, whose handler fails for the second alone now."""
    deploy(rehearsable=True)
    return world.billing


def deploy(**options: Any) -> None:
    def bill(message: Any) -> None:
        Order.objects.create(number=message.offset)
        if message.offset == 1:
            raise ValueError(f"still no account for {XSS}")

    registry._registered.pop(("orders", "billing"), None)
    consumer("orders", group="billing", **options)(bill)


def ids() -> list[int]:
    return list(DeadMessage.objects.order_by("-pk").values_list("pk", flat=True))


def states(shown: Any) -> list[str]:
    return [row[1] for row in shown.context["rows"]]


def test_a_part_of_the_log_is_rehearsed_and_nothing_changes(
    fixed: ConsumerGroup, as_role: Any
) -> None:
    client = as_role("operator")
    before = snapshot()
    asked = page(client, "rehearse", fixed)
    assert "What the handler does elsewhere happens" in asked.text
    assert states(asked) == []
    shown = page(client, "rehearse", fixed, **{"from": "0", "to": "3"})
    assert states(shown) == ["passes", "fails", "passes"]
    assert "ValueError: still no account for &lt;script&gt;" in shown.text
    assert XSS not in shown.text
    assert snapshot() == before
    assert not Order.objects.exists()
    assert not LogEntry.objects.exists()


def test_the_newest_dead_letters_of_a_group_are_rehearsed(
    fixed: ConsumerGroup, as_role: Any
) -> None:
    shown = page(as_role("operator"), "rehearse", fixed, newest="2")
    assert [row[0].dead_letter for row in shown.context["rows"]] == ids()[:2]
    assert states(shown) == ["passes", "fails"]


def test_chosen_dead_letters_are_rehearsed_once_it_is_confirmed(
    fixed: ConsumerGroup, as_role: Any
) -> None:
    client = as_role("operator")
    asked = client.post(LETTERS, action("rehearse", *ids()))
    assert states(asked) == []
    shown = client.post(LETTERS, action("rehearse", *ids(), run="1"))
    assert states(shown) == ["passes", "fails", "passes"]


def test_dead_letters_of_two_groups_are_not_rehearsed_at_once(
    fixed: ConsumerGroup, as_role: Any, world: World
) -> None:
    letter = DeadMessage.objects.get(pk=ids()[0])
    letter.pk, letter.group = None, world.mail
    letter.save()
    client = as_role("operator")
    response = client.post(LETTERS, action("rehearse", *ids(), run="1"))
    assert "of one group" in messages(client, response)[0]


def test_a_handler_that_does_not_declare_it_is_refused_and_no_form_is_shown(
    fixed: ConsumerGroup, as_role: Any
) -> None:
    deploy()
    shown = page(as_role("operator"), "rehearse", fixed, **{"from": "0", "to": "3"})
    assert "@consumer(…, rehearsable=True)" in shown.text
    assert 'name="from"' not in shown.text
    registry._registered.clear()
    shown = page(as_role("operator"), "rehearse", fixed, newest="1")
    assert "no consumer for billing on orders" in shown.text


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"from": "0"}, "to"),
        ({"from": "0", "to": "99"}, ""),
        ({"from": "x", "to": "1"}, "from"),
        ({"newest": "many"}, "newest"),
        ({"newest": "0"}, "newest"),
        ({"from": "0", "to": "1", "partition": "7"}, "partition"),
    ],
    ids=str,
)
def test_what_cannot_be_is_said_at_its_field(
    fixed: ConsumerGroup, as_role: Any, fields: dict[str, str], field: str
) -> None:
    shown = page(as_role("operator"), "rehearse", fixed, **fields)
    assert "result" not in shown.context
    if field:
        assert error_below(shown, field)
    else:
        assert "errornote" in shown.text


def test_a_page_takes_no_more_than_its_limit(
    fixed: ConsumerGroup, as_role: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearse, "MOST", 2)
    client = as_role("operator")
    shown = client.post(LETTERS, action("rehearse", *ids(), run="1"))
    assert states(shown) == ["passes", "fails"]
    assert "ems_groups rehearse takes more" in shown.text


def test_errors_are_for_who_may_view_messages(fixed: ConsumerGroup, as_role: Any) -> None:
    client = as_role("staff", "ems.view_consumergroup", "ems.rehearse_consumergroup")
    shown = page(client, "rehearse", fixed, **{"from": "1", "to": "2"})
    assert states(shown) == ["fails"]
    assert "no account" not in shown.text
    assert Message.objects.exists()
