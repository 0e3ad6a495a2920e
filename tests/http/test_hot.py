"""The routes that clients call all the time: one implementation, and nothing around it."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.handlers.asgi import ASGIHandler
from django.test import RequestFactory

from streams.http import app
from streams.http.asgi import refusing_early
from streams.http.hot import Hot
from streams.http.problems import answer
from streams.http.pulling.waiting import waiting
from streams.models import Message
from tests.http.conftest import Api, BareApi, MakeToken
from tests.http.test_produce import ORDERS

HOT = {
    *("send_message", "send_batch"),
    *("pull", "acknowledge", "acknowledge_all", "extend", "release"),
}


def operations() -> dict[str, Any]:
    return {
        operation.view_func.__name__: operation
        for bound in app.api._get_bound_routers()
        for view in bound.path_operations.values()
        for operation in view.operations
    }


def test_these_routes_are_hot() -> None:
    assert {name for name, one in operations().items() if isinstance(one.run, Hot)} == HOT


@pytest.mark.django_db
def test_only_what_is_hot_is_answered_without_djangos_handler(
    make_token: MakeToken, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled = []
    handler = ASGIHandler.__call__

    async def noted(self: Any, scope: Any, *ends: Any) -> None:
        handled.append(scope["path"])
        await handler(self, scope, *ends)

    monkeypatch.setattr(ASGIHandler, "__call__", noted)
    bare = BareApi(make_token("send:*", "consume:*/*", "read:*"))
    sent = bare.post(ORDERS, {"body": 1})
    assert (sent.status_code, sent["Cache-Control"]) == (201, "no-store")
    assert int(sent["Content-Length"]) == len(sent.content)
    assert bare.post("/deliveries/ack", {}).status_code == 422
    assert not handled
    assert bare.get(ORDERS).status_code == 200  # another method of the same path
    assert handled == [f"/ems/v1{ORDERS}"]


WRONG = [
    *(b"", b"{", b"null", b"[]", b'"x"', b"\xff", b"7", b"{}" * 2, b"[" * 100_000),
    *(b'{"nobody": "knows"}', b'{"body": NaN, "no": 1}', b'{"delay": Infinity}', b'{"tag": null}'),
    *(b'{"key": "\\ud800"}', b'{"key": "\xff"}', b'{"messages": []}', b'{"messages": [{}]}'),
    *(b'{"client": 1}', b'{"acks": []}', b'{"receipt": "x", "results": [{"offset": -1}]}'),
]


@pytest.mark.django_db
@pytest.mark.parametrize("name", sorted(HOT))
def test_what_is_wrong_with_a_request_is_said_as_everywhere(
    make_token: MakeToken, name: str
) -> None:
    token = make_token("send:*", "consume:*/*")
    operation = operations()[name]
    places = {"send_message": {"topic": "orders"}, "pull": {"topic": "orders", "group": "mail"}}
    place = places.get(name, {})

    def request(body: bytes) -> Any:
        factory = RequestFactory(headers={"Authorization": f"Bearer {token}"})
        made = factory.generic("POST", "/", body, "application/json", secure=True)
        made.resolver_match = SimpleNamespace(kwargs=place)  # type: ignore[assignment]
        return made

    async def ours(body: bytes) -> Any:
        try:
            return await operation.run(request(body), **place)
        except Exception as error:  # noqa: BLE001 - as guarded() does
            return answer(request(body), error)

    for body in WRONG:
        hot = async_to_sync(ours)(body)
        theirs = async_to_sync(type(operation).run)(operation, request(body), **place)
        said, expected = json.loads(hot.content), json.loads(theirs.content)
        assert (hot.status_code, said) == (theirs.status_code, expected), body
        assert hot.status_code in (400, 422), body
    assert not Message.objects.exists()


@pytest.mark.django_db
def test_a_header_is_an_argument_in_both_ways(api: Api, make_token: MakeToken) -> None:
    token = make_token("send:orders")
    first, *others = [
        one.post(ORDERS, {"body": 1}, token=token, **{"Idempotency-Key": "A7"}).json()
        for one in (api, BareApi(), api)
    ]
    assert [one["message_id"] for one in others] == [first["message_id"]] * 2
    assert [one["duplicate"] for one in (first, *others)] == [False, True, True]


@pytest.mark.django_db
def test_a_client_that_goes_is_held_no_longer(make_token: MakeToken) -> None:
    api = BareApi(make_token("send:orders", "consume:orders/*"))
    assert api.put("/topics/orders/groups/mail", {}).status_code == 201

    async def play() -> list[Any]:
        sent: list[Any] = []
        body = json.dumps({"client": "one", "hold": 20}).encode()
        parts = [{"type": "http.request", "body": body}]

        async def receive() -> Any:
            if parts:
                return parts.pop()
            while not waiting("default"):
                await asyncio.sleep(0.01)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = api.scope("POST", "/topics/orders/groups/mail/pull", body)
        asking = asyncio.ensure_future(refusing_early(ASGIHandler())(scope, receive, send))
        done, _pending = await asyncio.wait({asking}, timeout=10)
        assert done, "it is held for all of its 20 seconds"
        return sent

    assert async_to_sync(play)() == []
    assert not waiting("default")
