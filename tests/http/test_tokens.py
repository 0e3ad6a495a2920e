"""Tokens: what is kept of them, who is let in, how often, and for how long."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command
from django.test import override_settings
from django.urls import reverse
from pytest_django import Settings

from streams.database import remembered
from streams.http import access, rates
from streams.models import ApiRight, ApiToken
from streams.models.token import matches
from streams.operate.tokens import FORM, digest, revoke
from tests.admin.conftest import As, action, as_role
from tests.faults import Astray
from tests.http.conftest import Api, MakeToken
from tests.http.test_produce import ORDERS

__all__ = ["as_role"]
ADD = "admin:ems_apitoken_add"
PAST = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock of the caches and the rates: ``clock.now += 5``."""
    clock = SimpleNamespace(now=1000.0)
    clock.monotonic = lambda: clock.now
    for module in (access, remembered, rates):
        monkeypatch.setattr(module, "time", clock)
    return clock


def status(api: Api, token: str | None, **more: Any) -> int:
    return int(api.post(ORDERS, {}, token=token, **more).status_code)


def row_of(token: str) -> ApiToken:
    return ApiToken.objects.get(prefix=token.split("_")[1])


# -- what is kept --


def test_only_the_hash_of_a_token_is_kept(make_token: MakeToken) -> None:
    token = make_token("send:orders")
    form = FORM.fullmatch(token)
    assert form
    row = ApiToken.objects.get()
    assert (row.prefix, bytes(row.hash)) == (form[1], digest(form[2]))
    kept = json.dumps(list(ApiToken.objects.values()), default=lambda value: repr(value))
    assert form[2] not in kept


def test_two_tokens_are_different(make_token: MakeToken) -> None:
    assert len({make_token() for _ in range(20)}) == 20


@pytest.mark.parametrize(
    ("pattern", "places", "others"),
    [
        ("*", ["orders", "orders/mail"], []),
        ("orders", ["orders"], ["orders.eu", "order", "Orders", "orders/mail"]),
        ("orders.*", ["orders.eu", "orders."], ["orders", "ordersX"]),
        ("orders/mail", ["orders/mail"], ["orders/mails", "orders", "other/mail"]),
        ("orders/*", ["orders/mail"], ["orders.eu/mail", "orders"]),
        ("orders.*/mail", ["orders.eu/mail"], ["orders.eu/sms", "orders/mail"]),
        ("*/mail", ["orders/mail", "eu/mail"], ["orders/sms"]),
    ],
)
def test_a_pattern_stands_for_these_places(
    pattern: str, places: list[str], others: list[str]
) -> None:
    assert [one for one in places + others if matches(pattern, one)] == places


# -- who is let in --


@pytest.mark.django_db(transaction=True)  # in a TestCase nothing is remembered
def test_a_revoked_token_is_refused_within_five_seconds(
    api: Api, make_token: MakeToken, clock: SimpleNamespace
) -> None:
    token = make_token("send:orders")
    assert status(api, token) == 201
    assert revoke(row_of(token), "me", "default")
    assert not revoke(row_of(token), "me", "default")
    clock.now += 5
    assert status(api, token) == 401
    assert status(api, make_token("send:orders")) == 201


@pytest.mark.django_db(transaction=True)
def test_a_token_whose_time_is_over_is_refused(
    api: Api, make_token: MakeToken, clock: SimpleNamespace
) -> None:
    assert status(api, make_token("send:orders", expires_at=PAST)) == 401
    token = make_token("send:orders", expires_at=datetime.now(UTC) + timedelta(days=1))
    assert status(api, token) == 201
    ApiToken.objects.update(expires_at=PAST)
    clock.now += 5
    assert status(api, token) == 401


@pytest.mark.django_db(transaction=True)
def test_a_right_that_is_taken_away_is_refused_within_five_seconds(
    api: Api, make_token: MakeToken, clock: SimpleNamespace
) -> None:
    token = make_token("send:orders")
    assert status(api, token) == 201
    ApiRight.objects.all().delete()
    clock.now += 5
    assert status(api, token) == 403


@pytest.mark.django_db(transaction=True)  # in a TestCase nothing is remembered
def test_the_database_is_not_asked_about_each_request(
    api: Api, make_token: MakeToken, django_assert_num_queries: Any
) -> None:
    token = make_token("send:mail")
    assert status(api, token) == 403
    with django_assert_num_queries(0):
        assert status(api, token) == 403
        assert status(api, token[:-1] + ("A" if token[-1] != "A" else "B")) == 401


@pytest.mark.parametrize(
    "text",
    [
        *("", "ems_", "ems_aaaaaaaa_", "x" * 10_000, "ems_aaaaaaaa_" + "a" * 43, "Ünïcode"),
        "ems_aaaaaaaa_" + "a" * 42 + "/",
    ],
)
def test_what_is_no_token_is_refused(api: Api, make_token: MakeToken, text: str) -> None:
    make_token("send:orders")
    answer = api.post(ORDERS, {}, Authorization=f"Bearer {text}")
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")


def test_other_ways_to_log_in_are_refused(api: Api, make_token: MakeToken) -> None:
    token = make_token("send:orders")
    for header in (f"Basic {token}", token, "Bearer", f"Token {token}"):
        assert api.post(ORDERS, {}, Authorization=header).status_code == 401
    assert api.post(f"{ORDERS}?token={token}", {}).status_code == 401
    assert api.post(ORDERS, {}, Authorization=f"bearer {token}").status_code == 201


def test_a_token_is_taken_over_tls_only(
    api: Api,
    make_token: MakeToken,
    settings: Settings,
    ems_settings: Callable[..., None],
) -> None:
    token = make_token("send:orders")

    def plain() -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        return api.client.post(f"/ems/v1{ORDERS}", {}, "application/json", headers=headers)

    answer = plain()
    assert (answer.status_code, answer.json()["code"]) == (403, "tls_required")
    settings.DEBUG = True
    assert plain().status_code == 201
    settings.DEBUG = False
    ems_settings(HTTP_INSECURE=True)
    assert plain().status_code == 201


# -- how often --


def test_a_token_that_asks_faster_than_its_rate_is_told_when_to_come_again(
    api: Api, make_token: MakeToken, clock: SimpleNamespace
) -> None:
    token, other = make_token("send:orders", max_rate=2), make_token("send:orders")
    assert [status(api, token) for _ in range(3)] == [201, 201, 429]
    answer = api.post(ORDERS, {}, token=token)
    assert (answer.json()["code"], answer["Retry-After"]) == ("too_many_requests", "1")
    assert status(api, other) == 201
    clock.now += 0.5
    assert [status(api, token) for _ in range(2)] == [201, 429]


def test_no_token_has_a_rate_of_nothing(as_role: As, api: Api, make_token: MakeToken) -> None:
    answer = as_role("operator").post(reverse(ADD), form("send:orders", max_rate="0"))
    assert "greater than or equal to 1" in answer.content.decode()
    assert not ApiToken.objects.exists()
    assert status(api, make_token("send:orders", max_rate=0)) == 201  # written by hand: as 1


def test_wrong_tokens_lock_nobody_out(api: Api, make_token: MakeToken) -> None:
    """Behind a proxy all have one address, and nobody guesses 256 bits."""
    wrong = [f"ems_{n:08d}_{'a' * 43}" for n in range(30)]
    assert {status(api, one) for one in [*wrong, "nonsense"]} == {401}
    assert status(api, make_token("send:orders")) == 201


def test_it_is_noted_once_a_minute_that_a_token_is_used(
    api: Api, make_token: MakeToken, clock: SimpleNamespace
) -> None:
    token = make_token("send:orders")
    assert row_of(token).last_used_at is None
    status(api, token)
    used = row_of(token).last_used_at
    assert used is not None
    clock.now += 5
    status(api, token)
    assert row_of(token).last_used_at == used
    ApiToken.objects.update(last_used_at=used - timedelta(minutes=1))
    clock.now += 5
    status(api, token)
    assert row_of(token).last_used_at >= used


# -- in the admin --


def form(*rights: str, **more: str) -> dict[str, str]:
    data = {"name": "shop", "max_holds": "16", "rights-INITIAL_FORMS": "0", **more}
    data["rights-TOTAL_FORMS"] = str(len(rights))
    for number, text in enumerate(rights):
        verb, _colon, pattern = text.partition(":")
        data |= {f"rights-{number}-verb": verb, f"rights-{number}-pattern": pattern or "*"}
    return data


def test_a_new_token_is_shown_once(api: Api, as_role: As) -> None:
    browser = as_role("operator")
    answer = browser.post(reverse(ADD), form("send:orders", "look"))
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
    found = FORM.search(answer.content.decode())
    assert found
    assert status(api, found[0]) == 201
    row = ApiToken.objects.get()
    assert (row.name, row.created_by) == ("shop", "operator")
    assert sorted(map(str, row.rights.all())) == ["look:*", "send:orders"]
    change = reverse("admin:ems_apitoken_change", args=[row.pk])
    for url in (
        reverse("admin:ems_apitoken_changelist"),
        change,
        change.replace("change", "history"),
    ):
        page = browser.get(url).content.decode()
        assert row.prefix in page
        assert found[2] not in page
        assert row.hash.hex() not in page
    (entry,) = LogEntry.objects.all()
    assert "send:orders" in entry.get_change_message()
    assert found[2] not in entry.change_message


@pytest.mark.django_db(databases=["default", "other"])
def test_its_rights_are_read_where_it_is(make_token: MakeToken) -> None:
    found = FORM.search(make_token("look"))
    assert found
    with override_settings(DATABASE_ROUTERS=[Astray()]):
        known = access._find(found[1])
    assert known
    assert known[1].rights == {("look", "*")}


def test_nobody_gives_a_right_that_he_has_not(as_role: As) -> None:
    browser = as_role("staff", "ems.add_apitoken", "ems.view_apitoken", "ems.produce_topic")
    refused = browser.post(reverse(ADD), form("send:orders"))  # who may send may take back
    assert "ems.cancel_message" in refused.content.decode()
    names = ("ems.add_apitoken", "ems.view_apitoken", "ems.produce_topic", "ems.cancel_message")
    browser = as_role("staff", *names)
    refused = browser.post(reverse(ADD), form("send:orders", "manage:orders"))
    assert "ems.change_topic" in refused.content.decode()
    assert not ApiToken.objects.exists()
    assert FORM.search(browser.post(reverse(ADD), form("send:orders")).content.decode())


@pytest.mark.parametrize(
    ("right", "given", "lacking"),
    [
        ("read:orders", ("view_message", "view_topic"), "view_consumergroup"),
        ("read:orders", ("view_message", "view_consumergroup"), "view_topic"),
        (
            "prepare:shop",
            ("produce_topic", "commit_prepared", "rollback_prepared"),
            "view_preparedrow",
        ),
    ],
)
def test_nobody_lets_others_see_what_he_does_not(
    as_role: As, right: str, given: tuple[str, ...], lacking: str
) -> None:
    """``read`` shows topics and groups, too, and ``prepare`` what is prepared."""
    names = [f"ems.{name}" for name in ("add_apitoken", "view_apitoken", *given)]
    refused = as_role("staff", *names).post(reverse(ADD), form(right)).content.decode()
    assert f"ems.{lacking}" in refused
    browser = as_role("staff", *names, f"ems.{lacking}")
    assert FORM.search(browser.post(reverse(ADD), form(right)).content.decode())


def test_nobody_changes_a_token_that_may_do_more_than_he(
    make_token: MakeToken, as_role: As
) -> None:
    strong, weak = make_token("manage:orders"), make_token("send:orders")
    permissions = [f"ems.{name}_apitoken" for name in ("view", "change")]
    browser = as_role("staff", *permissions, "ems.produce_topic", "ems.cancel_message")
    for token, allowed in ((strong, False), (weak, True)):
        row = row_of(token)
        url = reverse("admin:ems_apitoken_change", args=[row.pk])
        given = row.rights.get()
        kept = {"rights-0-id": str(given.pk), "rights-0-token": str(row.pk)}
        data = form(str(given), name="renamed", **kept) | {"rights-INITIAL_FORMS": "1"}
        answer = browser.post(url, data)
        assert answer.status_code == (302 if allowed else 403), answer.content
        row.refresh_from_db()
        assert row.name == ("renamed" if allowed else "test")


def test_a_token_is_revoked_by_who_may_do_that(make_token: MakeToken, as_role: As) -> None:
    token = make_token("send:orders")
    page = reverse("admin:ems_apitoken_changelist")
    as_role("staff", "ems.view_apitoken").post(page, action("revoke", row_of(token).pk))
    assert row_of(token).revoked_at is None
    browser = as_role("staff", "ems.view_apitoken", "ems.revoke_apitoken")
    browser.post(page, action("revoke", row_of(token).pk))
    assert row_of(token).revoked_at is not None
    assert LogEntry.objects.get().object_id == str(row_of(token).pk)
    assert "revoked" in browser.get(page).content.decode()


# -- the command --


def test_the_command_issues_lists_and_revokes_tokens(
    db: None, api: Api, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "streams.operate")
    call_command("ems_tokens", "create", "shop", "--right", "send:orders", "--days", "90")
    token = capsys.readouterr().out.strip()
    assert status(api, token) == 201
    row = row_of(token)
    days = (row.expires_at - row.created_at).total_seconds() / 86400
    assert 89.9 < days < 90.1
    call_command("ems_tokens", "list", "--json")
    listed = capsys.readouterr().out
    assert token.split("_", 2)[2] not in listed + caplog.text
    assert [(one["name"], one["rights"]) for one in json.loads(listed)] == [("shop", "send:orders")]
    call_command("ems_tokens", "revoke", row.prefix)
    access._known.clear()
    assert status(api, token) == 401
    capsys.readouterr()
    call_command("ems_tokens", "list", "--json")
    assert json.loads(capsys.readouterr().out) == []
    events = [getattr(record, "ems_event", "") for record in caplog.records]
    assert [one for one in events if one.startswith("token")] == ["token.issued", "token.revoked"]


@pytest.mark.parametrize(
    "right",
    [
        *("fly:orders", "consume:orders", "", "Send:orders"),
        *(
            "look:orders",
            "look:o*",
            "send:ord*rs",
            "send: orders",
            "consume:*x/mail",
            "dead:orders/",
        ),
    ],
)
def test_the_command_refuses_rights_that_there_are_not(db: None, right: str) -> None:
    with pytest.raises(CommandError):
        call_command("ems_tokens", "create", "shop", "--right", right)
    assert not ApiToken.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("days", ["3000000", "10000000000"])
def test_the_command_issues_no_token_for_more_than_a_century(days: str) -> None:
    with pytest.raises(CommandError, match="century"):
        call_command("ems_tokens", "create", "shop", "--days", days)
    assert not ApiToken.objects.exists()


def test_a_web_server_keeps_nothing_of_a_request(api: Api, make_token: MakeToken) -> None:
    """Under WSGI each request has an event loop, and what its thread kept would slow it down."""
    token = make_token("send:orders")

    def kept() -> int:
        remembered.forget()
        assert status(api, token) == 201
        return len(copy_context())

    kept()  # the first one has what each thread needs once
    assert kept() == kept()
