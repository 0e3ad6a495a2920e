"""Makes the API: its endpoints, its answers to errors, and its OpenAPI file."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from functools import cache, partial, wraps
from inspect import getclosurevars
from io import RawIOBase
from typing import Any

from django.conf import settings as django_settings
from django.core.exceptions import RequestDataTooBig
from django.core.handlers.asgi import ASGIRequest
from django.core.handlers.wsgi import WSGIRequest
from django.db import connections
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.urls import URLPattern, path, re_path, resolve
from ninja import NinjaAPI
from ninja.operation import Operation, PathView
from ninja.renderers import JSONRenderer

from streams.http.access import identified
from streams.http.contract import complete
from streams.http.hot import Hot
from streams.http.problems import Problem, answer, handle_all, too_large
from streams.http.routes import ROUTERS, UNVERSIONED
from streams.logs import event
from streams.nouns.noun import NounEncoder

AsyncView = Callable[..., Awaitable[HttpResponseBase]]

logger = logging.getLogger("streams.http")

# In the scope of a request: that it was checked before its body was read (streams/http/asgi.py).
IS_CHECKED = "ems.is_checked"


class NounRenderer(JSONRenderer):
    encoder_class = NounEncoder


class Api(NinjaAPI):
    def get_openapi_operation_id(self, operation: Operation) -> str:
        return operation.view_func.__name__


api = Api(
    title="EMS",
    version="1",
    description="A message stream on the MySQL of a Django project.",
    urls_namespace="ems_http",
    openapi_url=None,  # see openapi() below
    renderer=NounRenderer(),
    docs_url=None,  # that page loads scripts from other hosts
)
handle_all(api)
for _router in ROUTERS:
    api.add_router("/v1", _router)
for _router in UNVERSIONED:
    api.add_router("", _router)


def _merge() -> None:
    """Make the operations of one path one view, whichever files they are in.

    Otherwise Django would find the first view, which does not know the methods of the others.
    """
    views: dict[str, PathView] = {}
    for bound in api._get_bound_routers():
        for name, view in list(bound.path_operations.items()):
            first = views.setdefault(bound.prefix + name, view)
            if first is not view:
                first.operations += bound.path_operations.pop(name).operations
    for view in views.values():
        for operation in view.operations:
            if getattr(operation.view_func, "is_hot", False):
                made: Any = operation
                made.run = Hot(operation)


_merge()


def schema(server: str = "/ems") -> dict[str, Any]:
    """Return the OpenAPI file; ``server`` is where the project has mounted the API."""
    made = {**api.get_openapi_schema(path_prefix=""), "servers": [{"url": server}]}
    complete(made)
    return made


def url_patterns() -> list[URLPattern]:
    """Return the URLs of the API; what is not one of them gets a problem, too."""
    found = [one for one in api.urls[0] if isinstance(one, URLPattern) and one.name != "api-root"]
    for one in found:
        operations: PathView = getclosurevars(one.callback).nonlocals["self"]
        made: Any = guarded(one.callback, partial(_identify, operations))
        made.operations = operations
        one.callback = made
    return [
        path("openapi.json", guarded(openapi), name="openapi"),
        *found,
        re_path(r"^v1/", guarded(_nothing, _nothing), name="nothing"),
    ]


async def _identify(operations: PathView, request: HttpRequest) -> Any:
    operation = operations._find_operation(request)
    for callback in operation.auth_callbacks if operation else ():
        await callback(request)


def guarded(view: AsyncView, early: AsyncView | None = None) -> Callable[..., Any]:
    """Put around a view what holds for all of them; ``early`` is called before a body is read."""

    async def check(request: HttpRequest) -> None:
        if early is not None:
            await early(request)
        _refuse_large(request)

    @wraps(view)
    async def call(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            _warn_if_late(request)
            _length(request)
            _take_chunks(request)
            response = await view(request, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - a page of HTML is not an answer to a program
            response = answer(request, error)
        if response.status_code == 405 and not response.get("Content-Type", "").endswith("json"):
            allowed = response["Allow"]
            response = Problem(405, "method_not_allowed", f"Allowed: {allowed}").response()
            response["Allow"] = allowed
        response["Cache-Control"] = "no-store"
        # CommonMiddleware does it, too, but a project may have none.
        if isinstance(response, HttpResponse) and "Content-Length" not in response:
            response["Content-Length"] = str(len(response.content))
        return response

    made: Any = call
    made.check = check
    made.csrf_exempt = True  # no cookie lets anybody in
    # With ATOMIC_REQUESTS Django refuses async views. The work has transactions of its own.
    made._non_atomic_requests = set(connections)
    return call


async def refusal(request: ASGIRequest) -> HttpResponse | None:
    """Return the answer to a request of the API that is refused without its body, else None."""
    try:
        request.resolver_match = resolve(request.path_info)
    except Http404:  # of the project
        return None
    check = getattr(request.resolver_match.func, "check", None)
    if check is None:
        return None
    scope: Any = request.scope
    scope[IS_CHECKED] = True
    try:
        await check(request)
    except Exception as error:  # noqa: BLE001 - a page of HTML is not an answer to a program
        return answer(request, error)
    return None


def hot_operation(request: ASGIRequest) -> Hot | None:
    """Return what runs the request, which refusal() has let pass, without Django's handler."""
    match = request.resolver_match
    operations = getattr(match.func, "operations", None) if match else None
    operation = operations._find_operation(request) if operations else None
    run: Any = operation.run if operation else None
    return run if isinstance(run, Hot) else None


@cache
def _warn_once() -> None:
    logger.warning(
        "The API is served by ASGI without refusing_early(): a body is read before its token is"
        " checked, and can fill the disk",
        extra=event("http.reads_early"),
    )


def _warn_if_late(request: HttpRequest) -> None:
    if isinstance(request, ASGIRequest) and IS_CHECKED not in request.scope:
        _warn_once()


def _refuse_large(request: HttpRequest) -> None:
    """Refuse a body that Django would not accept, before anything of it is read."""
    most: Any = django_settings.DATA_UPLOAD_MAX_MEMORY_SIZE  # None: no limit
    length = _length(request)
    if most is not None and length > most:
        raise too_large()


def _length(request: HttpRequest) -> int:
    """Return what Content-Length says; Django would fail with ValueError where it is no number."""
    length = request.META.get("CONTENT_LENGTH") or "0"
    if not re.fullmatch("[0-9]{1,18}", length):
        raise Problem(400, "malformed", "The header Content-Length is no number of bytes.")
    return int(length)


def _take_chunks(request: HttpRequest) -> None:
    """Let a body without a length be read under WSGI, where Django reads nothing of it."""
    if isinstance(request, WSGIRequest) and request.META.get("HTTP_TRANSFER_ENCODING"):
        if not request.environ.get("wsgi.input_terminated"):
            raise Problem(411, "length_required", "This server needs the header Content-Length.")
        chunks: Any = _Chunks(request.environ["wsgi.input"])
        request._stream = chunks


class _Chunks(RawIOBase):
    """A body that ends where its chunks do, read up to what Django accepts."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        most: Any = django_settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        content: bytes = self._stream.read() if most is None else self._stream.read(most + 1)
        if most is not None and len(content) > most:
            raise RequestDataTooBig
        return content


async def openapi(request: HttpRequest) -> HttpResponse:
    """Answer with the OpenAPI file, to staff and to any token."""
    if request.method not in ("GET", "HEAD"):
        raise Problem(405, "method_not_allowed", "Allowed: GET")
    auser: Any = getattr(request, "auser", None)  # without Django's sessions there is none
    user = await auser() if auser else None
    if not (user and user.is_active and user.is_staff):
        await identified(request)
    return JsonResponse(schema(request.path.removesuffix("/openapi.json")))


async def _nothing(request: HttpRequest) -> HttpResponse:
    raise Http404
