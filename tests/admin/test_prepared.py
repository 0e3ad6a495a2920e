"""The pages of prepared messages and check endpoints: who sees what, and what is typed in."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from streams.admin.alarm import alarm
from streams.models import CheckEndpoint, Consumer, PreparedRow, PreparedState, UtcNow
from streams.models.consumer import LEASE
from tests.admin.conftest import action
from tests.admin.world import SECRET, World
from tests.preparing import answering, answers, held, row, sent_keys

LIST = "admin:ems_preparedrow_changelist"
ENDPOINTS = "admin:ems_checkendpoint_changelist"


@pytest.fixture(autouse=True)
def three(world: World) -> World:
    """The world has A7 of the shop; three more wait for a person."""
    from streams import Decision

    answering(Decision.UNKNOWN)
    for number in range(3):
        held(f"B{number}", biz="bank")
    PreparedRow.objects.filter(biz="bank").update(state=PreparedState.MANUAL, next_at=None)
    return world


def pks(**filters: Any) -> list[int]:
    return list(PreparedRow.objects.filter(**filters).order_by("pk").values_list("pk", flat=True))


def offered(response: Any) -> dict[str, Any]:
    found = re.search(r'name="offer" value="([^"]+)"', response.content.decode())
    assert found, response.content.decode()[-2000:]
    return {"offer": found[1]}


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("", ["B2", "B1", "B0", "A7"]),
        ("?state=MANUAL", ["B0", "B1", "B2"]),
        ("?state=PREPARED", ["A7"]),
        ("?state=SENT", []),
        ("?biz=bank", ["B0", "B1", "B2"]),
        ("?biz=bank&checker=shop.order", ["B0", "B1", "B2"]),
        ("?checker=other", []),
        ("?q=B1", ["B1"]),
        ("?q=bank:B1", ["B1"]),
        ("?q=shop:B1", []),
    ],
)
def test_the_list_is_filtered_and_finds_whole_keys(as_role: Any, query: str, keys: Any) -> None:
    response = as_role("viewer").get(reverse(LIST) + query)
    assert [one.biz_key for one in response.context["cl"].result_list] == keys


def test_the_page_of_one_has_its_body_only_for_who_may_see_bodies(as_role: Any) -> None:
    url = reverse("admin:ems_preparedrow_change", args=[row("A7").pk])
    assert SECRET not in as_role("viewer").get(url).content.decode()
    page = as_role("viewer", "ems.view_body").get(url).content.decode()
    assert SECRET in page
    assert "<script>alert" not in page
    body = as_role("viewer", "ems.view_body").get(url.replace("change", "body"))
    assert body.content.decode() == SECRET


@pytest.mark.parametrize(
    ("verb", "state", "keys"),
    [("commit", PreparedState.SENT, ["A7"]), ("rollback", PreparedState.ROLLED_BACK, [])],
)
def test_one_is_decided_when_its_key_is_typed_in(
    as_role: Any, verb: str, state: str, keys: list[str]
) -> None:
    PreparedRow.objects.filter(biz_key="A7").update(headers={"ems-biz-key": "A7"})
    client = as_role("operator")
    asked = client.post(reverse(LIST), action(verb, row("A7").pk))
    for typed in ("", "A8"):
        again = action(verb, row("A7").pk, typed=typed, **offered(asked))
        assert "Nothing was done" in client.post(reverse(LIST), again).content.decode()
        assert row("A7").state == PreparedState.PREPARED
    client.post(reverse(LIST), action(verb, row("A7").pk, typed="A7"))  # without the preview
    assert row("A7").state == PreparedState.PREPARED
    client.post(reverse(LIST), action(verb, row("A7").pk, typed="A7", **offered(asked)))
    assert row("A7").state == state
    assert row("A7").decided_by == "operator:operator"
    assert sent_keys() == keys
    assert LogEntry.objects.get().object_id == str(row("A7").pk)


def test_many_are_decided_only_if_they_wait_for_a_person(as_role: Any) -> None:
    client = as_role("operator")
    asked = client.post(reverse(LIST), action("commit", *pks()))
    page = asked.content.decode()
    assert "bank:B2" in page
    assert "shop:A7" not in page
    client.post(reverse(LIST), action("commit", *pks(), typed="4", **offered(asked)))
    assert sent_keys() == []
    client.post(reverse(LIST), action("commit", *pks(), typed="3", **offered(asked)))
    assert sent_keys() == ["B0", "B1", "B2"]
    assert LogEntry.objects.count() == 3


def test_what_was_decided_since_the_preview_is_shown_again(as_role: Any) -> None:
    client = as_role("operator")
    asked = client.post(reverse(LIST), action("commit", *pks(biz="bank")))
    PreparedRow.objects.filter(biz_key="B0").update(state=PreparedState.ROLLED_BACK)
    again = client.post(
        reverse(LIST), action("commit", *pks(biz="bank"), typed="3", **offered(asked))
    )
    assert again.status_code == 200
    assert sent_keys() == []


def test_the_others_are_checked_now_and_sent_again(as_role: Any) -> None:
    client = as_role("operator")
    client.post(reverse(LIST), action("check", *pks(biz="bank")))
    assert set(PreparedRow.objects.values_list("state", flat=True)) == {"PREPARED"}
    held("C1").rollback()
    asked = client.post(reverse(LIST), action("resend", row("C1").pk))
    client.post(reverse(LIST), action("resend", row("C1").pk, typed="C1", **offered(asked)))
    assert sent_keys() == ["C1"]
    assert row("C1").last_error == "Sent anyway by operator:operator."


def test_a_dispute_is_ended_by_a_rollback_too(as_role: Any) -> None:
    held("C1").rollback()
    PreparedRow.objects.filter(biz_key="C1").update(disputed_at=UtcNow())
    client = as_role("operator")
    page = client.get(reverse("admin:ems_preparedrow_change", args=[row("C1").pk]))
    assert "Roll back …" in page.content.decode()
    asked = client.post(reverse(LIST), action("rollback", row("C1").pk))
    client.post(reverse(LIST), action("rollback", row("C1").pk, typed="C1", **offered(asked)))
    assert not row("C1").is_disputed


@pytest.mark.parametrize("verb", ["check", "commit", "rollback", "resend"])
def test_each_verb_needs_its_permission(as_role: Any, verb: str) -> None:
    for permission in ("check", "commit", "rollback"):
        client = as_role("viewer", f"ems.{permission}_prepared")
        form = client.get(reverse(LIST)).context["action_form"]
        names = {name for name, _text in form.fields["action"].choices if name}
        verbs = {"check": {"check"}, "commit": {"commit", "resend"}, "rollback": {"rollback"}}
        assert names == verbs[permission]


def test_the_top_of_every_page_says_that_a_person_must_decide() -> None:
    Consumer.objects.update(lease_until=UtcNow(10 * LEASE))
    assert alarm("default").text == "Prepared messages wait for a decision by a person."


def test_the_top_of_every_page_says_what_else_waits_for_a_person() -> None:
    Consumer.objects.update(lease_until=UtcNow(10 * LEASE))
    PreparedRow.objects.update(state=PreparedState.UNSENT)
    assert "their topics refuse them" in alarm("default").text
    PreparedRow.objects.update(state=PreparedState.ROLLED_BACK, disputed_at=UtcNow())
    assert alarm("default").text.startswith("A check has rolled back")
    PreparedRow.objects.update(disputed_at=None)
    assert "repared" not in alarm("default").text


def test_an_endpoint_is_tested_and_its_secrets_are_never_shown(as_role: Any) -> None:
    client = as_role("operator")
    found = CheckEndpoint.objects.get()
    for url in (reverse(ENDPOINTS), reverse("admin:ems_checkendpoint_change", args=[found.pk])):
        for role in ("viewer", "operator"):
            page = as_role(role).get(url).content.decode()
            assert "s3cret-of-it" not in page
            assert "example.com/x" not in page
    change = reverse("admin:ems_checkendpoint_change", args=[found.pk])
    client = as_role("operator")
    given = {"name": "shop", "dialect": "trustmessage", "enabled": "on", "url": "", "secret": ""}
    typed = {**given, "current_secret": "s3cret-of-it"}
    assert client.post(change, typed).status_code == 302
    found.refresh_from_db()
    assert (found.dialect, found.secret) == ("trustmessage", "s3cret-of-it")
    with answers() as server:
        server.say({"data": {"messageKey": "ems-test-of-the-endpoint", "messageStatus": 1}})
        CheckEndpoint.objects.update(url=server.url, allow_private=True)
        page = client.post(reverse(ENDPOINTS), action("test", found.pk), follow=True)
        assert "Shop: unknown" in page.content.decode()
    # Only a superuser changes one that may reach private addresses, or lets one do so.
    assert client.post(change, given).status_code == 403
    CheckEndpoint.objects.update(allow_private=False, url="https://example.com/x")
    client.post(change, {**given, "allow_private": "on"})
    found.refresh_from_db()
    assert not found.allow_private
    http = client.post(change, {**typed, "url": "http://example.com/"})
    assert "http is for private" in http.content.decode()


DECIDES = ("ems.commit_prepared", "ems.rollback_prepared")
CHANGE_ENDPOINTS = ("ems.view_checkendpoint", "ems.change_checkendpoint", "ems.add_checkendpoint")


@pytest.mark.parametrize(
    "moved",
    [{"url": "https://evil.example/"}, {"name": "b"}, {"secret": "n"}, {"dialect": "trustmessage"}],
)
def test_who_changes_where_ems_asks_must_type_the_secret_again(
    as_role: Any, moved: dict[str, str]
) -> None:
    """What answers there decides about messages."""
    found = CheckEndpoint.objects.get()
    change = reverse("admin:ems_checkendpoint_change", args=[found.pk])
    given = {"name": "shop", "dialect": "ems", "enabled": "on", "url": "", "secret": "", **moved}
    for client in (as_role("viewer", *CHANGE_ENDPOINTS), as_role("operator")):
        for typed in ("", "wrong", *moved.values()):
            page = client.post(change, {**given, "current_secret": typed})
            assert "Type the secret that the endpoint has now" in page.content.decode()
        assert CheckEndpoint.objects.filter(
            name="shop", url="https://example.com/x", secret="s3cret-of-it", dialect="ems"
        ).exists()
    client = as_role("viewer", *CHANGE_ENDPOINTS)
    assert client.post(change, {**given, "current_secret": "s3cret-of-it"}).status_code == 302
    found.refresh_from_db()
    assert {name: getattr(found, name) for name in moved} == moved


def test_without_a_secret_the_rights_to_decide_are_needed(as_role: Any) -> None:
    CheckEndpoint.objects.update(secret="")
    found = CheckEndpoint.objects.get()
    change = reverse("admin:ems_checkendpoint_change", args=[found.pk])
    given = {"name": "shop", "dialect": "ems", "enabled": "on", "url": "https://other.example/"}
    page = as_role("viewer", *CHANGE_ENDPOINTS).post(change, given)
    assert "you need the rights to commit and roll back" in page.content.decode()
    client = as_role("viewer", *CHANGE_ENDPOINTS, *DECIDES)
    assert client.post(change, given).status_code == 302


@pytest.mark.parametrize("missing", DECIDES)
def test_who_adds_or_deletes_an_endpoint_needs_the_rights_to_decide(
    as_role: Any, missing: str
) -> None:
    """Messages that come later name it, too."""
    found = CheckEndpoint.objects.get()
    add = reverse("admin:ems_checkendpoint_add")
    delete = reverse("admin:ems_checkendpoint_delete", args=[found.pk])
    given = {"name": "pay", "dialect": "ems", "enabled": "on", "url": "https://other.example/"}
    rights = (*CHANGE_ENDPOINTS, "ems.delete_checkendpoint")
    client = as_role("viewer", *rights, *(one for one in DECIDES if one != missing))
    assert client.post(add, given).status_code == 403
    assert client.post(delete, {"post": "yes"}).status_code == 403
    sure = {**action("delete_selected", found.pk), "post": "yes"}
    client.post(reverse(ENDPOINTS), sure)
    assert CheckEndpoint.objects.get() == found
    client = as_role("viewer", *rights, *DECIDES)
    assert client.post(add, given).status_code == 302
    assert client.post(delete, {"post": "yes"}).status_code == 302
    assert CheckEndpoint.objects.get().name == "pay"
