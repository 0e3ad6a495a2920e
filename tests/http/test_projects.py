"""The API in projects with other settings: each of these has broken an API of Django before."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth.models import User
from django.core.handlers.asgi import ASGIHandler
from django.db import connections
from django.http import HttpRequest
from django.test import AsyncClient, Client
from django.utils.decorators import sync_only_middleware
from pytest_django import Settings

from streams.checks import check_http
from streams.http import app
from streams.http.asgi import refusing_early
from streams.models import Message, SystemConfig
from tests.http.conftest import Api, MakeToken
from tests.http.contract import endpoints, every_right
from tests.http.test_produce import ORDERS

# The bodies of requests: nothing, and something that no endpoint takes.
NO_MATTER = b'{"nobody": "knows"}'


@sync_only_middleware
def of_the_host(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """A middleware as many projects have it: it cannot be awaited."""

    def middleware(request: HttpRequest) -> Any:
        response = get_response(request)
        response["X-Host"] = "was here"
        return response

    return middleware


SYNC = [f"{__name__}.of_the_host"]


@pytest.fixture
def atomic_requests(transactional_db: None) -> Iterator[None]:
    given = connections.settings["default"]
    given["ATOMIC_REQUESTS"] = True
    yield
    given["ATOMIC_REQUESTS"] = False


def test_no_endpoint_minds_atomic_requests(
    atomic_requests: None, api: Api, make_token: MakeToken
) -> None:
    api.token = make_token(*every_right())
    for endpoint in endpoints():
        answer = api.call(endpoint.method, endpoint.url(), NO_MATTER)
        assert answer.status_code != 500, f"{endpoint}: {answer.content}"
        assert "html" not in answer.get("Content-Type", ""), endpoint


def test_with_atomic_requests_a_message_is_committed_when_the_answer_comes(
    atomic_requests: None, api: Api, make_token: MakeToken
) -> None:
    api.token = make_token("send:orders")
    assert api.post(ORDERS, {"body": 1}).status_code == 201
    assert Message.objects.get().body_type == "json"


def test_a_message_is_committed_in_a_project_that_commits_by_hand(
    transactional_db: None,
    api: Api,
    make_token: MakeToken,
    second_connection: Callable[..., Any],
) -> None:
    api.token = make_token("send:orders")
    other = second_connection()
    given = connections.settings["default"]
    given["AUTOCOMMIT"] = False
    try:
        for _ in range(2):  # the first opens the connection
            assert api.post(ORDERS, {}).status_code == 201
    finally:
        given["AUTOCOMMIT"] = True
    assert len(other.execute("SELECT id FROM ems_msg")) == 2


def test_a_large_message_fits_where_django_lets_it(
    api: Api, make_token: MakeToken, settings: Settings
) -> None:
    api.token = make_token("send:orders")
    message = {"body": "x" * 4_000_000}
    assert api.post(ORDERS, message).status_code == 201
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 2621440  # Django's default
    answer = api.post(ORDERS, message)
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert answer["Content-Type"] == "application/problem+json"
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = None
    assert api.post(ORDERS, message).status_code == 201


def test_a_large_body_without_a_length_is_refused_too(
    api: Api, make_token: MakeToken, settings: Settings
) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    token = make_token("send:orders")

    async def send() -> Any:
        sent: list[Any] = []
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "scheme": "https",
            "path": f"/ems/v1{ORDERS}",
            "query_string": b"",
            "headers": [(b"host", b"testserver"), (b"authorization", f"Bearer {token}".encode())],
            "client": ["127.0.0.1", 1],
        }
        parts = iter(
            [
                {"type": "http.request", "body": b'{"body": "' + b"x" * 1000, "more_body": True},
                {"type": "http.request", "body": b'"}', "more_body": False},
            ]
        )

        async def receive() -> Any:
            return next(parts)

        async def keep(message: Any) -> None:
            sent.append(message)

        await AsyncHandler(ASGIHandler())(scope, receive, keep)
        return sent

    start, *_rest = async_to_sync(send)()
    assert start["status"] == 413
    assert not Message.objects.exists()


class AsyncHandler:
    """Waits only for the answer: Django also listens for a client that goes away."""

    def __init__(self, handler: Any) -> None:
        handler.load_middleware(is_async=True)
        self._handler = handler

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = await self._handler.read_body(receive)
        request, error = self._handler.create_request(scope, body)
        assert error is None
        response = await self._handler.get_response_async(request)
        await self._handler.send_response(response, send)
        body.close()


def test_the_largest_message_has_to_fit_or_a_check_says_so(db: None, settings: Settings) -> None:
    assert check_http(databases=["default"]) == []
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 2621440
    (warning,) = check_http(databases=["default"])
    assert (warning.id, "5679786" in str(warning.hint)) == ("ems.W022", True)
    assert check_http(databases=[]) == []
    SystemConfig.objects.create(name="msgMaxSizeInBytes", value=1_000_000)
    assert check_http(databases=["default"]) == []
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = None
    assert check_http(databases=["default"]) == []


def test_a_session_is_no_token(api: Api, make_token: MakeToken) -> None:
    api.client.force_login(User.objects.create_superuser("root"))
    for endpoint in endpoints():
        if endpoint.right is not None:
            answer = api.call(endpoint.method, endpoint.url(), NO_MATTER)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
            assert answer["WWW-Authenticate"].startswith("Bearer")


def test_a_token_needs_no_csrf_token_and_no_answer_sets_a_cookie(
    api: Api, make_token: MakeToken
) -> None:
    api.client = Client(enforce_csrf_checks=True)
    answer = api.post(ORDERS, {}, token=make_token("send:orders"))
    assert answer.status_code == 201
    assert not answer.cookies
    assert answer["Cache-Control"] == "no-store"
    assert not [name for name in answer.headers if name.startswith("Access-Control")]


def test_a_middleware_that_is_not_async_is_no_hindrance(
    api: Api, make_token: MakeToken, settings: Settings
) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, *SYNC]
    token = make_token("send:orders")
    api.client = Client()
    assert api.post(ORDERS, {}, token=token)["X-Host"] == "was here"
    post = AsyncClient().post
    answer = async_to_sync(post)(
        f"/ems/v1{ORDERS}",
        json.dumps({}),
        "application/json",
        secure=True,
        headers={"Authorization": f"Bearer {token}"},
    )
    assert (answer.status_code, answer["X-Host"]) == (201, "was here")


def test_an_answer_has_its_length_in_a_project_without_middleware(
    api: Api, make_token: MakeToken, settings: Settings
) -> None:
    settings.MIDDLEWARE = []
    answer = api.post(ORDERS, {"body": 1}, token=make_token("send:orders"))
    assert answer["Content-Length"] == str(len(answer.content))


def test_instants_are_in_utc_in_a_project_without_time_zones(
    api: Api, make_token: MakeToken, settings: Settings
) -> None:
    settings.USE_TZ = False
    settings.TIME_ZONE = "Asia/Shanghai"
    api.token = make_token("send:orders", expires_at=datetime(2100, 1, 1, tzinfo=UTC))
    answer = api.post(ORDERS, {"deliver_at": "2100-01-31T12:00:00Z"})
    assert answer.status_code == 201, answer.content
    assert Message.objects.get().due_at == datetime(2100, 1, 31, 12, tzinfo=UTC)


@pytest.mark.django_db(databases=["default", "other"])
def test_everything_is_on_the_alias_of_ems(
    api: Api, make_token: MakeToken, ems_settings: Callable[..., None]
) -> None:
    ems_settings(DATABASE="other")
    assert api.post(ORDERS, {}, token=make_token("send:orders")).status_code == 401
    api.token = make_token("send:orders", using="other")
    sent = api.post(ORDERS, {"delay": 60})
    assert sent.status_code == 201
    assert not Message.objects.using("default").exists()
    assert Message.objects.using("other").get().pk == sent.json()["message_id"]
    assert api.delete(f"/messages/{sent.json()['message_id']}").status_code == 200


def test_there_is_no_page_that_loads_anything_from_elsewhere(
    api: Api, make_token: MakeToken
) -> None:
    api.token = make_token("look")
    assert app.api.docs_url is None
    for path in ("/ems/docs", "/ems/v1/docs", "/ems/v1/", "/ems/"):
        assert api.get(path).status_code == 404
    text = api.get("/ems/openapi.json").content
    assert b"http://" not in text
    assert b"https://" not in text


def test_what_is_not_there_is_a_problem_and_no_page(api: Api) -> None:
    for method, path, status in (
        ("GET", "/nothing", 404),
        ("POST", "/topics/a%2Fb/messages", 404),
        ("GET", ORDERS.replace("messages", "nothing"), 404),
        ("TRACE", ORDERS, 405),
    ):
        answer = api.call(method, path)
        assert answer.status_code == status, (method, path)
        assert answer["Content-Type"] == "application/problem+json"


def test_every_endpoint_is_async_and_no_path_is_there_twice() -> None:
    """A view that is not async would hold a thread; a second path would never be found."""
    shapes = set()
    for bound in app.api._get_bound_routers():
        for path, view in bound.path_operations.items():
            assert all(operation.is_async for operation in view.operations), path
            shape = "/".join("{}" if part.startswith("{") else part for part in path.split("/"))
            assert shape not in shapes, path
            shapes.add(shape)


@pytest.mark.parametrize("path", ["/any/", "/ems/v1/overview"])
@pytest.mark.parametrize("malformed", [{"query_string": b"q=\xff"}, {"method": None}])
def test_a_malformed_request_gets_the_answer_that_it_gets_without_the_check(
    path: str, malformed: dict[str, Any]
) -> None:
    scope = {"type": "http", "method": "GET", "path": path, "headers": [], **malformed}

    async def application(given: Any, receive: Any, send: Any) -> None:
        handled.append((given, receive, send))

    async def unused(*message: Any) -> None:
        raise AssertionError(message)

    handled: list[Any] = []
    async_to_sync(refusing_early(application))(scope, unused, unused)
    assert handled == [(scope, unused, unused)]


def test_a_malformed_query_is_a_400_for_any_page() -> None:
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/any/",
        "headers": [],
        "query_string": b"q=\xff",
    }

    async def status() -> int:
        asked = ApplicationCommunicator(refusing_early(ASGIHandler()), scope)
        await asked.send_input({"type": "http.request"})
        return int((await asked.receive_output())["status"])

    assert async_to_sync(status)() == 400


def test_the_log_says_once_that_asgi_reads_bodies_before_tokens(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app._warn_once.cache_clear()
    for _time in range(2):
        assert async_to_sync(AsyncClient().get)("/ems/v1/nowhere").status_code == 404
    assert caplog.text.count("without refusing_early()") == 1
