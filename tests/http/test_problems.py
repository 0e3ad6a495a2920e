"""Errors over HTTP: a problem with a code for programs, and never a page."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.signals import got_request_exception
from django.db import DataError, OperationalError, connection

from streams import errors
from streams.http import problems, threads
from streams.http.routes import produce
from streams.operate.topics import create
from tests.http.conftest import Api, MakeToken
from tests.http.contract import Endpoint, endpoints, every_right
from tests.http.test_produce import ORDERS


@pytest.mark.parametrize(
    ("error", "status", "code", "wait"),
    [
        (errors.SendOutcomeUnknown(), 503, "send_outcome_unknown", "1"),
        (errors.NotMigrated(), 503, "not_migrated", "1"),
        (OperationalError(1146, "Table 'x.ems_msg' doesn't exist"), 503, "not_migrated", "1"),
        (OperationalError(2003, "Can't connect"), 503, "database_unavailable", "1"),
        (OperationalError(1213, "Deadlock"), 503, "database_unavailable", "1"),
        (DataError(1406, "Data too long: secret"), 500, "internal_error", None),
        (errors.LeaseLost(), 410, "lease_lost", None),
        (errors.OffsetOutOfRange(), 409, "offset_out_of_range", None),
        (errors.ConfigurationError(), 500, "configuration_error", None),
        (ZeroDivisionError("secret"), 500, "internal_error", None),
    ],
)
def test_an_error_has_its_status_and_its_code(
    api: Api,
    make_token: MakeToken,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    status: int,
    code: str,
    wait: str | None,
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    told: list[Any] = []

    def tell(**kwargs: Any) -> None:
        told.append(kwargs["request"])

    monkeypatch.setattr(produce, "send", fail)
    got_request_exception.connect(tell)
    try:
        answer = api.post(ORDERS, {}, token=make_token("send:orders"))
    finally:
        got_request_exception.disconnect(tell)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer["Content-Type"] == "application/problem+json"
    assert answer.get("Retry-After") == wait
    assert b"secret" not in answer.content
    assert len(told) == (status == 500)


def test_a_title_is_the_same_on_every_python() -> None:
    titles = {
        status: json.loads(problems.Problem(status, "x", "y").response().content)["title"]
        for status in (*problems.STATUS.values(), 400, 401, 403, 405, 429)
    }
    assert "Error" not in titles.values(), "one for a status that has no title"
    assert (titles[413], titles[422]) == ("Content Too Large", "Unprocessable Entity")


def test_a_database_that_is_away_is_said(
    transactional_db: None, api: Api, make_token: MakeToken, request: pytest.FixtureRequest
) -> None:
    token = make_token("send:orders")
    request.getfixturevalue("away")
    answer = api.post(ORDERS, {}, token=token)
    assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable")
    assert answer["Retry-After"] == "1"


@pytest.mark.mysql
def test_a_connection_that_the_server_has_ended_fails_no_request(
    transactional_db: None,
    monkeypatch: pytest.MonkeyPatch,
    api: Api,
    make_token: MakeToken,
    ems_settings: Callable[..., None],
    second_connection: Callable[..., Any],
) -> None:
    monkeypatch.setattr(threads, "UNUSED_SECONDS", 0.0)
    ems_settings(HTTP_THREADS=1)
    token = make_token("send:orders")
    assert api.post(ORDERS, {}, token=token).status_code == 201

    def number() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT CONNECTION_ID()")
            return int(cursor.fetchone()[0])

    for _ in range(2):
        ended = threads.pool().submit(number).result(20)
        second_connection().execute(f"KILL {ended}")
        assert api.post(ORDERS, {}, token=token).status_code == 201


HALF = "\ud800"  # of a surrogate pair: JSON can write it, UTF-8 cannot
OF_GROUP = {"topic": "orders", "group": "mail", "dry_run": True}
PREPARED = {"biz": "b", "biz_key": "k", "topic": "orders", "body": 1}


def after(*values: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"/topics?after={after(HALF)}", None),
        ("GET", f"/prepared?biz=x&after={after(HALF)}", None),
        ("POST", "/dead/redrive", {**OF_GROUP, "topic": HALF}),
        ("POST", "/dead/redrive", {**OF_GROUP, "group": HALF}),
        ("POST", "/dead/redrive", {**OF_GROUP, "error_class": HALF}),
        ("POST", "/dead/discard", {**OF_GROUP, "error_class": HALF}),
        ("POST", "/dead/redrive", {**OF_GROUP, "rate": float("nan")}),
        ("POST", "/prepared", {**PREPARED, "checker": HALF}),
        ("POST", "/stress", {"topic": "stress.a", "rate": float("inf")}),
    ],
)
def test_what_a_database_cannot_store_is_refused(
    api: Api,
    make_token: MakeToken,
    ems_settings: Callable[..., None],
    method: str,
    path: str,
    body: Any,
) -> None:
    ems_settings(STRESS=True)
    create("orders", 1, "default")
    answer = api.call(method, path, body, token=make_token(*every_right()))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid"), answer.content


# No object, no JSON, no UTF-8, an unknown member, no number of this world, and more than Python
# reads: a digit too many for int(), a nesting too deep for json.
ODD_BODIES = (
    *(b"", b"null", b"[]", b"1", b'"x"', b"{", b"{}", b"\xff\xfe", b'{"unknown": 1}'),
    *(b"NaN", b"9" * 5000, b"[" * 100_000, b'{"a":' * 100_000),
)


@pytest.mark.parametrize(
    "endpoint", [one for one in endpoints() if "requestBody" in one.operation], ids=str
)
def test_no_odd_body_is_a_fault_of_the_server(
    api: Api, make_token: MakeToken, ems_settings: Callable[..., None], endpoint: Endpoint
) -> None:
    ems_settings(STRESS=True)
    create("orders", 1, "default")
    api.token = make_token(*every_right())
    for body in ODD_BODIES:
        answer = api.call(endpoint.method, endpoint.url(), body)
        assert answer.status_code < 500, (body[:20], answer.content)
        if answer.status_code >= 400:
            assert answer["Content-Type"] == "application/problem+json", body[:20]


@pytest.mark.parametrize("length", ["abc", "-1", "1_0", "1,1", "9" * 5000])
def test_a_length_that_is_no_number_is_malformed(
    api: Api, make_token: MakeToken, length: str
) -> None:
    create("orders", 1, "default")
    token = make_token("send:orders")
    answer = api.client.post(
        f"/ems/v1{ORDERS}",
        {"body": 1},
        "application/json",
        secure=True,
        headers={"Authorization": f"Bearer {token}", "Content-Length": length},
    )
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed"), answer.content
