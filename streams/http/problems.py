"""Says what went wrong, as ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.core.signals import got_request_exception
from django.db import Error, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, UnreadablePostError
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError

from streams import errors
from streams.database.retrying import tables_missing, transient
from streams.logs import event

logger = logging.getLogger("streams.http")

CONTENT_TYPE = "application/problem+json"
TYPE = "urn:ems:problem:"
# How many seconds a client waits before it asks again where the database is away.
AWAY_SECONDS = 1

# The status of each error of EMS; the nearest class counts. Its code is its name.
STATUS: dict[type[Exception], int] = {
    errors.InvalidName: 422,
    errors.InvalidMessage: 422,
    errors.InvalidValue: 422,
    errors.RedriveRunning: 409,
    errors.InvalidTarget: 422,
    errors.InvalidPlace: 422,
    errors.InvalidDuration: 422,
    errors.InvalidPartitions: 422,
    errors.InvalidRetryPolicy: 422,
    errors.InvalidRate: 422,
    errors.InvalidConsumer: 422,
    errors.UnknownChecker: 422,
    errors.MessageTooLarge: 413,
    errors.UnknownTopic: 404,
    errors.UnknownGroup: 404,
    errors.UnknownPartition: 404,
    errors.UnknownPrepared: 404,
    errors.UnknownReplay: 404,
    errors.LeaseLost: 410,
    errors.SendOutcomeUnknown: 503,
    errors.NotMigrated: 503,
    errors.Disabled: 503,
    errors.LogDamaged: 503,
    errors.CheckFailed: 502,
    errors.ConfigurationError: 500,
    # What is left is refused because of how things are now.
    errors.StreamsError: 409,
}

# Of our own: the phrases of http.HTTPStatus change with the version of Python.
TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    410: "Gone",
    413: "Content Too Large",
    422: "Unprocessable Entity",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
}


# The codes that are not the name of an error.
CODES: dict[int, tuple[str, ...]] = {
    400: ("malformed",),
    401: ("unauthorized",),
    403: ("forbidden", "stress_off", "tls_required"),
    404: ("not_found", "unknown"),
    405: ("method_not_allowed",),
    409: (
        *("already_committed", "already_rolled_back", "count_mismatch", "preview_expired"),
        *("stress_running", "too_long", "visible"),
    ),
    410: ("purged",),
    411: ("length_required",),
    413: ("body_too_large",),
    422: ("database_needed", "invalid"),
    429: ("too_many_requests",),
    500: ("internal_error",),
    503: ("busy", "database_unavailable", "no_python"),
}


class Problem(Exception):
    """The end of a request with this answer; ``more`` are members beside the usual ones."""

    def __init__(
        self, status: int, code: str, detail: str, *, retry_after: int | None = None, **more: Any
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail
        self.retry_after, self.more = retry_after, more

    def response(self) -> HttpResponse:
        content = {
            "type": TYPE + self.code,
            "title": TITLES.get(self.status, "Error"),
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            **self.more,
        }
        response = HttpResponse(json.dumps(content), status=self.status, content_type=CONTENT_TYPE)
        if self.retry_after is not None:
            response["Retry-After"] = str(self.retry_after)
        if self.status == HTTPStatus.UNAUTHORIZED:
            response["WWW-Authenticate"] = 'Bearer realm="EMS"'
        return response


def code_of(error: type[BaseException]) -> str:
    """Return the code of an error class: ``lease_lost`` of LeaseLost."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", error.__name__).lower()


def status_of(error: type[Exception]) -> int:
    return next(STATUS[one] for one in error.__mro__ if one in STATUS)


def codes() -> dict[int, list[str]]:
    """Return all codes by their status."""
    found = {status: list(own) for status, own in CODES.items()}
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.StreamsError):
            found.setdefault(status_of(kind), []).append(code_of(kind))
    return {status: sorted(some) for status, some in found.items()}


def problem_of(error: Exception) -> Problem:
    """Return what to answer after ``error``."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, errors.StreamsError):
        status = status_of(type(error))
        wait = AWAY_SECONDS if status == HTTPStatus.SERVICE_UNAVAILABLE else None
        return Problem(status, code_of(type(error)), str(error), retry_after=wait)
    if isinstance(error, Error):
        return _of_database(error)
    if isinstance(error, RequestDataTooBig):
        return too_large()
    if isinstance(error, UnreadablePostError):
        return Problem(400, "malformed", "The request ended too early.")
    if isinstance(error, ValidationError):
        return Problem(422, "invalid", _complaints(error), errors=_places(error))
    if isinstance(error, AuthenticationError):
        return Problem(401, "unauthorized", "A token is needed: Authorization: Bearer ems_…")
    if isinstance(error, Http404):
        return Problem(404, "not_found", "There is no such address.")
    if isinstance(error, HttpError):
        return Problem(error.status_code, "malformed", error.message)
    return Problem(500, "internal_error", "EMS failed. Its log says why.")


def too_large() -> Problem:
    return Problem(413, "body_too_large", "The request is larger than this server accepts.")


def answer(request: HttpRequest, error: Any) -> HttpResponse:
    """Return the response to ``error``, after a record of it if it is a fault of this server."""
    problem = problem_of(error)
    if problem.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        # As Django does it for its own pages, so that what watches for errors sees this one.
        got_request_exception.send(sender=None, request=request)
        logger.error(
            "%s %s failed",
            request.method,
            request.path,
            exc_info=error,
            extra=event("http.failed", error=type(error).__name__),
        )
    return problem.response()


def handle_all(api: NinjaAPI) -> None:
    """Let ``api`` answer all errors as problems, and never with a page of HTML."""
    for kind in (Exception, HttpError, Http404, ValidationError):
        api.add_exception_handler(kind, answer)


def _of_database(error: Error) -> Problem:
    if tables_missing(error):
        return problem_of(errors.NotMigrated())
    if transient(error) or isinstance(error, InterfaceError | OperationalError):
        text = "The database is unavailable."
        return Problem(503, "database_unavailable", text, retry_after=AWAY_SECONDS)
    return Problem(500, "internal_error", "EMS failed. Its log says why.")


def _complaints(error: ValidationError) -> str:
    return "; ".join(f"{one['at']}: {one['text']}" for one in _places(error))


def _places(error: ValidationError) -> list[Mapping[str, str]]:
    """Return where the request is wrong and why; nothing of what it has there."""
    return [{"at": _place(one["loc"]), "text": _text(one)} for one in error.errors]


def _text(one: Mapping[str, Any]) -> str:
    if one["type"].startswith("model_"):  # pydantic names our class
        return "Input should be an object"
    return str(one["msg"]).removeprefix("Value error, ")


def _place(path: Sequence[str | int]) -> str:
    """Return ``body.key`` or ``path.id``: without the name that the body has in our code."""
    source, *names = path
    return ".".join(map(str, [source, *(names[1:] if source == "body" else names)]))
