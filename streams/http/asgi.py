"""Refuses requests under ASGI before their body is read.

Django's handler writes the whole body into a file before any view sees the request: without this,
anybody could fill the disk. An ``asgi.py`` imports this module before Django is set up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponse

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


def refusing_early(application: Application) -> Application:
    """Return ``application``; what the API refuses is refused before its body is read.

    In the ``asgi.py`` of a project: ``application = refusing_early(get_asgi_application())``.
    """

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await application(scope, receive, send)
            return
        from streams.http.problems import too_large

        refused = await _refusal(scope)
        if refused is not None:
            await _answer(refused, send)
            return
        try:
            await application(scope, _bounded(scope, receive), send)
        except RequestDataTooBig:
            await _answer(too_large().response(), send)

    return call


async def _refusal(scope: Scope) -> HttpResponse | None:
    from streams.http.app import refusal

    try:
        request = ASGIRequest(scope, BytesIO())
    except Exception:  # noqa: BLE001 - any page of the project: its handler says what is malformed
        return None
    # What the check has found out, such as who calls, is in the scope for the view.
    return await refusal(request)


def _bounded(scope: Scope, receive: Receive) -> Receive:
    """Return ``receive``, which raises RequestDataTooBig after too much for the API."""
    from streams.http.app import IS_CHECKED

    most: Any = settings.DATA_UPLOAD_MAX_MEMORY_SIZE  # None: no limit
    if most is None or IS_CHECKED not in scope:
        return receive
    received = 0

    async def counted() -> Any:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > most:
            raise RequestDataTooBig
        return message

    return counted


async def _answer(response: HttpResponse, send: Send) -> None:
    headers = [(name.encode("ascii"), value.encode("latin-1")) for name, value in response.items()]
    start = {"type": "http.response.start", "status": response.status_code, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": response.content})
