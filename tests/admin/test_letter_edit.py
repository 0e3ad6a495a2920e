"""Edit a dead letter in the admin: form, difference, confirmation; who may, and what is logged."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.urls import reverse

from streams.admin.verbs import edit as pages
from streams.body import decode
from streams.consume.outcome.dead_letter import redrive
from streams.models import DeadMessage, LetterEdit, RetryMessage
from tests.admin.conftest import messages, offered
from tests.admin.world import SECRET, World, snapshot

pytestmark = pytest.mark.django_db

EDIT = ("ems.view_deadmessage", "ems.edit_deadmessage", "ems.view_body")


def address(letter: DeadMessage) -> str:
    return reverse("admin:ems_deadmessage_edit", args=[letter.pk])


def typed(**changes: str) -> dict[str, str]:
    return {
        "body": '{"n": 2}',
        "body_type": "json",
        "key": "k",
        "tag": "",
        "headers": "",
        **changes,
    }


def preview(client: Any, letter: DeadMessage, **changes: str) -> Any:
    response = client.post(address(letter), typed(**changes))
    assert response.status_code == 200
    return response


def test_the_form_shows_the_message_as_it_is_and_the_page_of_the_letter_leads_to_it(world, as_role):
    client = as_role("staff", *EDIT)
    page = reverse("admin:ems_deadmessage_change", args=[world.letter.pk])
    assert address(world.letter) in client.get(page).text
    shown = html.unescape(client.get(address(world.letter)).text)
    assert f'"note": "{SECRET}' in shown
    assert 'value="key-0"' in shown
    assert '"trace":' in shown


@pytest.mark.parametrize("missing", EDIT)
def test_it_needs_its_own_permission_and_that_to_view_bodies(world, as_role, missing):
    client = as_role("staff", *(name for name in EDIT if name != missing))
    before = snapshot()
    page = client.get(reverse("admin:ems_deadmessage_change", args=[world.letter.pk]))
    assert address(world.letter) not in page.text
    assert client.get(address(world.letter)).status_code == 403
    assert client.post(address(world.letter), typed()).status_code == 403
    assert snapshot() == before


def test_a_difference_is_shown_first_and_then_exactly_this_is_sent(world, as_role):
    client = as_role("staff", *EDIT)
    letter = DeadMessage.objects.get(offset=1)
    before = snapshot()
    shown = preview(client, letter)
    assert '<span class="ems-removed">-  &quot;n&quot;: 1</span>' in shown.text
    assert '<span class="ems-added">+key: k</span>' in shown.text
    assert snapshot() == before
    response = client.post(address(letter), {"offer": offered(shown), "body": "[]"})
    assert "Edited and redriven" in messages(client, response)[0]
    letter.refresh_from_db()
    assert decode(bytes(letter.body), letter.body_type) == {"n": 2}
    assert RetryMessage.objects.get(dead_letter=letter.pk).attempt == 1
    entry = LogEntry.objects.get()
    assert (entry.user.username, entry.object_id) == ("staff", str(letter.pk))
    assert (entry.action_flag, entry.change_message) == (CHANGE, "Edited and redriven")
    assert LetterEdit.objects.get(letter=letter.pk).who == "staff"
    page = client.get(reverse("admin:ems_deadmessage_change", args=[letter.pk]))
    assert "staff at " in page.text
    assert '<span class="ems-added">+  &quot;n&quot;: 2</span>' in page.text


@pytest.mark.parametrize(
    ("field", "changes", "told"),
    [
        ("body", {"body": '{\n  "n": 2,,\n}'}, "line 2, column 10"),
        ("headers", {"headers": "[1]"}, "headers must map strings to strings"),
        ("tag", {"tag": "a b"}, "tag"),
        ("key", {"key": "k" * 300}, "key"),
    ],
)
def test_an_error_stands_at_its_field_and_what_was_typed_stays(
    world, as_role, field, changes, told
):
    client = as_role("staff", *EDIT)
    before = snapshot()
    shown = preview(client, world.letter, **changes)
    found = re.search(rf'id="ems-{field}-error"><li>(.*?)</li>', shown.text)
    assert found, shown.text
    assert told in html.unescape(found[1])
    assert changes[field] in html.unescape(shown.text)
    assert snapshot() == before


def test_nothing_changed_is_said_and_edit_further_keeps_what_was_typed(world, as_role):
    client = as_role("staff", *EDIT)
    letter = DeadMessage.objects.get(offset=1)
    same = {"body": '{"n":1}', "key": "key-1", "tag": letter.tag}
    shown = preview(client, letter, **same, headers=json.dumps(letter.headers))
    assert "Nothing is changed" in shown.text
    shown = preview(client, letter)
    again = client.post(address(letter), {"offer": offered(shown), "again": "1"})
    assert "{&quot;n&quot;: 2}" in again.text.replace("\n", "").replace("  ", "")


def test_ends_of_lines_of_a_browser_are_not_those_of_the_body(world, as_role):
    client = as_role("staff", *EDIT)
    letter = DeadMessage.objects.get(offset=2)
    shown = preview(client, letter, body="a\r\nb", body_type="text")
    client.post(address(letter), {"offer": offered(shown)})
    letter.refresh_from_db()
    assert bytes(letter.body) == b"a\nb"


def test_a_letter_redriven_meanwhile_is_refused(world, as_role):
    client = as_role("staff", *EDIT)
    letter: DeadMessage = world.letter
    shown = preview(client, letter)
    redrive(letter)
    before = list(RetryMessage.objects.values())
    response = client.post(address(letter), {"offer": offered(shown)})
    assert "redriven already" in messages(client, response)[0]
    assert "redriven already" in messages(client, client.get(address(letter)))[0]
    assert list(RetryMessage.objects.values()) == before
    assert not LogEntry.objects.exists()


def test_an_offer_of_a_letter_that_died_again_meanwhile_is_refused(world: World, as_role):
    client = as_role("staff", *EDIT)
    letter = world.letter
    shown = preview(client, letter)
    DeadMessage.objects.filter(pk=letter.pk).update(died_at=letter.sent_at)
    response = client.post(address(letter), {"offer": offered(shown)})
    assert "Nothing was done" in messages(client, response)[0]
    assert world.letter.redriven_at is None


def test_an_offer_is_only_good_for_its_user_and_its_letter(world, as_role):
    client = as_role("staff", *EDIT)
    other = DeadMessage.objects.get(offset=1)
    token = offered(preview(client, world.letter))
    before = snapshot()
    for who, letter, text in (
        (client, other, token),
        (as_role("operator"), world.letter, token),
        (client, world.letter, token[:-1]),
    ):
        response = who.post(address(letter), {"offer": text})
        assert "not valid any more" in messages(who, response)[0]
    assert snapshot() == before


def test_a_body_too_large_for_a_form_is_for_the_command(world, as_role, monkeypatch):
    monkeypatch.setattr(pages, "EDITED_AT_MOST", 5)
    client = as_role("staff", *EDIT)
    (told,) = messages(client, client.get(address(world.letter)))
    assert f"ems_dead edit {world.letter.pk} --body @FILE" in told


def test_a_post_without_a_csrf_token_is_refused(world, as_role):
    client = as_role("operator", enforce_csrf_checks=True)
    before = snapshot()
    assert client.post(address(world.letter), typed()).status_code == 403
    assert snapshot() == before
