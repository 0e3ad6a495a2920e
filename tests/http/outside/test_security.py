"""Every endpoint of the OpenAPI file with every kind of token; and no token is written down."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

import pytest
from pytest_django import Settings

from streams.http import access
from streams.http.access import RIGHT
from streams.http.app import schema
from streams.models import ApiToken, Topic, Verb
from streams.models.token import OF_GROUPS
from streams.operate.tokens import revoke
from tests.http.conftest import Api, MakeToken
from tests.http.contract import METHODS, Endpoint, endpoints
from tests.http.test_produce import ORDERS

PAST = datetime(2020, 1, 1, tzinfo=UTC)
# What needs no token: a probe, and the metrics, which have a token or an address list of their own.
OPEN = {"GET /healthz", "GET /metrics"}
# No endpoint takes this body. Who gets past the check of the token is told so, or what is missing.
NOTHING = b'{"nobody": "knows"}'

protected = pytest.mark.parametrize(
    "endpoint", [one for one in endpoints() if one.right is not None], ids=str
)


def test_no_endpoint_is_without_a_right() -> None:
    for path, methods in schema()["paths"].items():
        for method, operation in methods.items():
            assert method in METHODS
            assert RIGHT in operation, f"{method} {path} declares none: see access.needs()"
            if operation[RIGHT] is None:
                assert f"{method.upper()} {path}" in OPEN
            else:
                assert operation[RIGHT]["verb"] in Verb.values
                assert operation["security"] == [{"Bearer": []}]


def of(verb: str, topic: str = "orders", group: str = "orders") -> str:
    """Return a right on one topic, or on one group of it."""
    return f"{verb}:{topic}/{group}" if verb in OF_GROUPS else f"{verb}:{topic}"


def called(api: Api, endpoint: Endpoint, token: str | None) -> Any:
    access._known.clear()
    return api.call(endpoint.method, endpoint.url(), NOTHING, token=token)


@protected
def test_nobody_is_let_in_without_a_valid_token(
    api: Api, make_token: MakeToken, endpoint: Endpoint
) -> None:
    assert endpoint.right
    right = f"{endpoint.right['verb']}:*"
    good = make_token(right)
    revoked, expired = make_token(right), make_token(right, expires_at=PAST)
    revoke(ApiToken.objects.get(prefix=revoked.split("_")[1]), "me", "default")
    wrong = good[:-1] + ("A" if good[-1] != "A" else "B")
    unknown = f"ems_{'0' * 8}_{good.split('_', 2)[2]}"
    for token in (None, wrong, unknown, revoked, expired):
        answer = called(api, endpoint, token)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized"), token
    assert called(api, endpoint, good).status_code not in (401, 403)


@protected
def test_only_the_right_on_this_place_lets_in(
    api: Api, make_token: MakeToken, endpoint: Endpoint
) -> None:
    assert endpoint.right
    verb = endpoint.right["verb"]
    refused = [make_token(*(f"{one}:*" for one in Verb.values if one != verb)), make_token()]
    let_in = [make_token(f"{verb}:*")]
    if endpoint.place is not None:
        others = [("payments", "orders"), ("Orders", "orders"), ("order", "orders")]
        others.append(("orders.eu", "orders"))
        if verb in OF_GROUPS:
            others += [("orders", "payments"), ("orders", "order")]
        refused += [make_token(of(verb, *place)) for place in others]
        let_in += [make_token(of(verb)), make_token(of(verb, "ord*", "ord*"))]
    for exists in (False, True):  # and the answer does not tell
        if exists:
            Topic.objects.create(name="orders")
        for token in refused:
            answer = called(api, endpoint, token)
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    for token in let_in:
        assert called(api, endpoint, token).status_code not in (401, 403)


def test_a_request_that_names_its_topics_needs_a_right_to_each(
    api: Api, make_token: MakeToken
) -> None:
    messages = {"messages": [{"topic": "orders"}, {"topic": "mail"}]}
    one, both = make_token("send:orders"), make_token("send:orders", "send:mail")
    assert api.post("/messages", messages, token=one).status_code == 403
    assert api.post("/messages", messages, token=both).status_code == 201


def test_no_token_is_in_a_log_an_answer_or_the_openapi_file(
    api: Api,
    make_token: MakeToken,
    caplog: pytest.LogCaptureFixture,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG)
    token = make_token("send:orders")
    wrong = f"ems_{'0' * 8}_{'s' * 43}"

    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("it is broken")

    texts = []
    for debug in (False, True):
        settings.DEBUG = debug
        with monkeypatch.context() as patch:
            patch.setattr("streams.http.routes.produce.send", broken)
            failed = api.post(ORDERS, {}, token=token)
        assert (failed.status_code, failed.json()["code"]) == (500, "internal_error")
        others = [api.post(ORDERS, {}, token=one) for one in (token, wrong)]
        basic = api.post(ORDERS, {}, Authorization=f"Basic {token}")
        nowhere = api.get("/nowhere", token=token)
        contract = api.get("/ems/openapi.json", token=token)
        texts += [one.content.decode() for one in (failed, *others, basic, nowhere, contract)]
    records = [
        f"{record.getMessage()} {vars(record)} {record.exc_text}" for record in caplog.records
    ]
    assert any(getattr(record, "ems_event", "") == "http.failed" for record in caplog.records)
    for secret in (token.split("_", 2)[2], "s" * 43):
        assert secret not in "".join(texts)
        assert secret not in "".join(records)
    assert "it is broken" not in "".join(texts)


def test_the_openapi_file_is_for_staff_and_for_any_token(
    api: Api, make_token: MakeToken, admin_client: Any, client: Any
) -> None:
    page = "/ems/openapi.json"
    assert admin_client.get(page, secure=True).status_code == 200
    assert client.get(page, secure=True).status_code == 401
    answer = api.get(page, token=make_token())
    assert answer.json() == json.loads(json.dumps(schema()))
    assert api.post(page, {}, token=make_token()).status_code == 405
