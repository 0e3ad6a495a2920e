"""The pages of dead letters and messages: few statements, and nothing that a strict CSP refuses."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from streams.models import DeadMessage, LetterEdit, Message, Redrive
from tests.admin.world import World
from tests.monitoring.test_pages import Elements

pytestmark = pytest.mark.django_db

# Of a page itself: those of the frame, for session, permissions and banner, are counted apart.
STATEMENTS = 12


def pages(world: World) -> dict[str, str]:
    letter, row = world.letter.pk, Redrive.objects.get().pk
    return {
        "letters": reverse("admin:ems_deadmessage_changelist"),
        "letters of a group": reverse("admin:ems_deadmessage_changelist")
        + f"?group={world.billing.pk}",
        "letter": reverse("admin:ems_deadmessage_change", args=[letter]),
        "edit": reverse("admin:ems_deadmessage_edit", args=[letter]),
        "edits": reverse("admin:ems_letteredit_changelist"),
        "redrives": reverse("admin:ems_redrive_changelist"),
        "redrive": reverse("admin:ems_redrive_change", args=[row]),
    }


def statements(client: Client, url: str) -> int:
    """The statements of a page beside those of the frame that every page of the app has."""
    counts = []
    for each in (reverse("admin:app_list", args=["ems"]), url):
        with CaptureQueriesContext(connection) as queries:
            assert client.get(each).status_code == 200
        counts.append(len(queries))
    return counts[1] - counts[0]


def test_each_page_reads_by_few_statements(world, as_role):
    DeadMessage.objects.filter(pk=world.letter.pk).update(edited_at=world.letter.died_at)
    client = as_role("operator")
    counts = {name: statements(client, url) for name, url in pages(world).items()}
    assert all(count <= STATEMENTS for count in counts.values()), counts


def test_the_statements_do_not_grow_with_the_rows(world, as_role):
    client = as_role("operator")
    before = {name: statements(client, url) for name, url in pages_of_lists().items()}
    for _ in range(5):
        copied: tuple[Any, ...] = (DeadMessage, LetterEdit, Redrive)
        for row in [model.objects.order_by("pk")[0] for model in copied]:
            row.pk = None
            row.save(force_insert=True)
    assert {name: statements(client, url) for name, url in pages_of_lists().items()} == before


def pages_of_lists() -> dict[str, str]:
    names = ("deadmessage", "letteredit", "redrive")
    return {name: reverse(f"admin:ems_{name}_changelist") for name in names}


def test_nothing_on_them_is_inline(world, as_role):
    client = as_role("operator")
    message = Message.objects.get(offset=0)
    urls = {**pages(world), "message": reverse("admin:ems_message_change", args=[message.pk])}
    for name, url in urls.items():
        assert Elements(client.get(url).text).refused == [], name
