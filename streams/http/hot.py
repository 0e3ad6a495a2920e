"""Runs the operations that clients call all the time, with as little around them as possible.

An operation is declared as all others are: its right, its fields and its answers, of which the
OpenAPI file is made. Only what runs it is another: django-ninja takes as long for a request as the
INSERT of a send does, and Django's handler twice as long (docs/about/benchmarks/http.md).
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse
from ninja import Status
from ninja.operation import Operation
from pydantic.fields import FieldInfo

from streams.http.fields import Request

V = TypeVar("V", bound=Callable[..., Any])
Receive = Callable[[], Awaitable[Any]]


def hot(view: V) -> V:
    """Declare that an endpoint is called all the time: :class:`Hot` runs it."""
    view.is_hot = True  # type: ignore[attr-defined]
    return view


class Hot:
    """What runs one operation, in place of ``Operation.run``.

    What a request lacks is told by django-ninja, to which a request that does not fit is handed: so
    there is one text for it. Errors are for ``guarded()``, which is around each view.
    """

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        self._view = operation.view_func
        (self._identify,) = operation.auth_callbacks
        self._content: tuple[str, type[Request]] | None = None
        self._headers: dict[str, str] = {}  # by parameter: the key in request.META
        parameters = inspect.signature(self._view, eval_str=True).parameters
        for name, parameter in parameters.items():
            kind = parameter.annotation
            if isinstance(kind, type) and issubclass(kind, Request):
                self._content = name, kind
            for one in getattr(kind, "__metadata__", ()):
                if isinstance(one, FieldInfo) and one.alias:
                    self._headers[name] = "HTTP_" + one.alias.upper().replace("-", "_")

    @property
    def waits(self) -> bool:
        """Tell whether a request may be held: then its client may go meanwhile."""
        return inspect.iscoroutinefunction(inspect.unwrap(self._view))

    async def __call__(self, request: HttpRequest, **places: Any) -> HttpResponse:
        request.auth = await self._identify(request)  # type: ignore[attr-defined]
        made = await self._view(request, **self._given(request, places))
        if isinstance(made, HttpResponse):
            return made
        status, answer = (made.status_code, made.value) if isinstance(made, Status) else (200, made)
        content = answer.model_dump_json()
        return HttpResponse(content, status=status, content_type="application/json")

    def _given(self, request: HttpRequest, places: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of the view; raises what django-ninja does."""
        given = {**places, **{name: request.META.get(key) for name, key in self._headers.items()}}
        if self._content is not None:
            name, kind = self._content
            body = request.body
            try:
                given[name] = kind.model_validate(json.loads(body))
            except (ValueError, RecursionError):  # also of pydantic
                found: dict[str, Any] = self._operation._get_values(request, places, None)  # type: ignore[arg-type]
                return found
        return given


async def answered(request: ASGIRequest, receive: Receive, *, waits: bool) -> HttpResponse | None:
    """Read the body of a request and return its answer; None if the client is gone.

    With ``waits`` the work is cancelled when the client goes, as Django's handler does it.
    """
    parts = []
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    request._body = b"".join(parts)
    match: Any = request.resolver_match
    run = match.func(request, *match.args, **match.kwargs)
    if not waits:
        answer: HttpResponse = await run
        return answer
    task, gone = asyncio.current_task(), False

    async def listen() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        gone = True
        if task is not None:
            task.cancel()

    listening = asyncio.ensure_future(listen())
    try:
        answer = await run
    except asyncio.CancelledError:
        if not gone:  # the server stops
            raise
        return None
    else:
        return answer
    finally:
        listening.cancel()
