"""Tells who calls, and whether this caller may do what the request asks for."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from django.conf import settings as django_settings
from django.db.models import Prefetch, Q
from django.http import HttpRequest
from ninja.operation import Operation
from ninja.security.base import AuthBase
from ninja.utils import contribute_operation_callback

from streams import conf
from streams.database.remembered import Fresh
from streams.http import rates
from streams.http.problems import Problem
from streams.http.threads import on_a_thread, refuse_if_busy
from streams.models import ApiRight, ApiToken, UtcNow
from streams.models.token import matches
from streams.operate.tokens import FORM, digest

V = TypeVar("V", bound=Callable[..., Any])

# The name of an operation's right in the OpenAPI file. An endpoint without one is refused.
RIGHT = "x-right"
# Who calls, in the scope of a request: its token is checked once.
CALLER = "ems.caller"
# How often a token in use is noted to be so.
USED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True)
class Caller:
    """Who calls: a valid token, with its rights as (verb, pattern)."""

    id: int
    name: str
    prefix: str
    created_by: str
    owner: str
    max_rate: int | None
    max_holds: int
    rights: frozenset[tuple[str, str]]

    def may(self, verb: str, place: str | None = None) -> bool:
        """Tell whether the caller has the right on ``place``; without one, on any."""
        return any(
            verb == one and (place is None or matches(pattern, place))
            for one, pattern in self.rights
        )

    def needs(self, verb: str, place: str | None = None) -> None:
        """Raise a Problem (403) if the caller has no such right."""
        if not self.may(verb, place):
            # Not whether there is such a topic: who may not use it is not told that either.
            raise Problem(403, "forbidden", f"The token has no right {verb!r} on this.")


class ApiRequest(HttpRequest):
    """A request that has passed the check of its token."""

    auth: Caller


# Of each prefix: the hash of the secret, and who it is.
_known: Fresh[str, tuple[bytes, Caller]] = Fresh()


class Bearer(AuthBase):
    """The check that a caller has a token with the right ``verb`` on ``place``.

    ``place`` has the parameters of the path in braces: ``{topic}/{group}``. Without one, a caller
    with the right on anything is let in, and the endpoint asks for more: ``request.auth.needs()``.
    """

    openapi_type = "http"
    openapi_scheme = "bearer"

    def __init__(self, verb: str | None = None, place: str | None = None) -> None:
        super().__init__()
        self._verb, self._place = verb, place

    async def __call__(self, request: HttpRequest) -> Caller:
        caller = await identified(request)
        if self._verb is not None:
            match = request.resolver_match
            given = match.kwargs if match else {}
            caller.needs(self._verb, self._place.format(**given) if self._place else None)
        return caller


def needs(verb: str, place: str | None = None) -> Callable[[V], V]:
    """Declare the right that an endpoint needs; see :class:`Bearer`. Below the route, above the
    rest::

        @router.post("/topics/{topic}/messages")
        @needs("send", "{topic}")
        @on_pool
        def send_message(request: ApiRequest, topic: str, message: NewMessage) -> Sent: …
    """
    right = {"verb": verb} if place is None else {"verb": verb, "on": place}
    return _declared(right, Bearer(verb, place))


def open_to_all(view: V) -> V:
    """Declare that an endpoint needs no token."""
    return _declared(None, None)(view)


def _declared(right: dict[str, str] | None, bearer: Bearer | None) -> Callable[[V], V]:
    def contribute(operation: Operation) -> None:
        operation.auth_param = bearer
        operation._set_auth(bearer)
        operation.openapi_extra = {**(operation.openapi_extra or {}), RIGHT: right}

    def declare(view: V) -> V:
        contribute_operation_callback(view, contribute)
        return view

    return declare


async def identified(request: HttpRequest) -> Caller:
    """Return who calls; raises Problem: 403 without TLS, 401 without a valid token, 429, 503.

    And Disabled where EMS is off, before the use of the token is noted.
    """
    conf.make_sure_enabled()
    scope = getattr(request, "scope", {})  # of ASGI
    if CALLER in scope:
        caller: Caller = scope[CALLER]
        return caller
    refuse_plain(request)
    refuse_if_busy()
    scheme, _blank, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not given.strip():
        raise Problem(401, "unauthorized", "A token is needed: Authorization: Bearer ems_…")
    caller = await _caller(given.strip())
    rates.refuse_fast(caller.id, caller.max_rate)
    scope[CALLER] = caller
    return caller


async def identified_again(request: HttpRequest, verb: str, place: str) -> Caller:
    """Return who calls, as a new request would be told, for one that was held; raises Problem.

    Its token may be revoked by now, or have no longer the right ``verb`` on ``place``.
    """
    _scheme, _blank, given = request.headers.get("Authorization", "").partition(" ")
    caller = await _caller(given.strip())
    caller.needs(verb, place)
    return caller


def refuse_plain(request: HttpRequest) -> None:
    """Raise a Problem (403) for a request that others on its way may have read."""
    if not (django_settings.DEBUG or request.is_secure() or conf.settings().HTTP_INSECURE):
        raise Problem(
            403, "tls_required", "Tokens are taken over TLS only; this request came without."
        )


async def _caller(text: str) -> Caller:
    """Return whose token this is; raises Problem (401).

    Wrong ones have no limit: nobody guesses 256 bits, and an address may be that of many.
    """
    form = FORM.fullmatch(text)
    caller = await _looked_up(form[1], digest(form[2])) if form else None
    if caller is None:
        raise Problem(401, "unauthorized", "The token is unknown, expired or revoked.")
    return caller


async def _looked_up(prefix: str, hash_: bytes) -> Caller | None:
    """Return who has this token; the table is asked if nobody has asked it for FRESH_SECONDS."""
    known = _known.fresh(prefix)
    if known is None:
        _known.pop(prefix, None)
        known = await on_a_thread(_find, prefix)
    return known[1] if known and hmac.compare_digest(known[0], hash_) else None


def _find(prefix: str) -> tuple[bytes, Caller] | None:
    """Return the hash and the caller of a valid token, and note that it is in use.

    Remembered here, by a thread of the pool: connections[...] on an event loop makes a context
    variable, and under WSGI, where each request has a loop, the web server's thread keeps them all.
    """
    until = time.monotonic() + conf.FRESH_SECONDS
    using = conf.database()
    tokens = ApiToken.objects.using(using).valid().filter(prefix=prefix)
    unnoted = Q(last_used_at=None) | Q(last_used_at__lte=UtcNow(-USED_EVERY))
    rights_there = Prefetch("rights", ApiRight.objects.using(using))
    token = tokens.annotate(unnoted=unnoted).prefetch_related(rights_there).first()
    if token is None:
        return None
    if token.unnoted:  # type: ignore[attr-defined]  # of the annotation
        tokens.filter(unnoted).update(last_used_at=UtcNow())
    rights = frozenset((right.verb, right.pattern) for right in token.rights.all())
    caller = Caller(
        *(token.pk, token.name, token.prefix, token.created_by, token.owner),
        *(token.max_rate, token.max_holds, rights),
    )
    return _known.keep(prefix, (bytes(token.hash), caller), until, using)
