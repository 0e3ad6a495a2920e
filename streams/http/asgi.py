"""Refuses requests under ASGI before their body is read, and answers those that come all the time.

Django's handler writes the whole body into a file before any view sees the request: without this,
anybody could fill the disk. It also changes between threads ten times and more for each request. An
``asgi.py`` imports this module before Django is set up.
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

    Its hot routes are answered here, so they pass neither Django's handler nor any middleware of
    the project. In its ``asgi.py``: ``application = refusing_early(get_asgi_application())``.
    """

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        request = _request(scope) if scope["type"] == "http" else None
        if request is None:
            await application(scope, receive, send)
            return
        from streams.http.app import hot_operation, refusal
        from streams.http.hot import answered
        from streams.http.problems import too_large

        # What the check has found out, such as who calls, is in the scope for the view.
        response = await refusal(request)
        if response is None:
            receive = _bounded(scope, receive)
            try:
                if (hot := hot_operation(request)) is None:
                    await application(scope, receive, send)
                else:
                    response = await answered(request, receive, waits=hot.waits)
            except RequestDataTooBig:
                response = too_large().response()
        if response is not None:
            await _answer(response, send)

    return call


def _request(scope: Scope) -> ASGIRequest | None:
    """Return the request without its body; None if it is malformed.

    Then the handler of the project says so, whichever of its pages it is for.
    """
    try:
        return ASGIRequest(scope, BytesIO())
    except Exception:  # noqa: BLE001 - any page of the project
        return None


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
