"""Prepares messages and decides about them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from ninja import Router, Status

from streams.database import retrying
from streams.errors import AlreadyDecided
from streams.http.access import ApiRequest, Caller, needs
from streams.http.databases import OfKey, alias_of_key, page_of_all
from streams.http.fields import (
    Limit,
    NoFields,
    PageOfAll,
    Request,
    body_in,
)
from streams.http.journal import who
from streams.http.problems import Problem
from streams.http.threads import on_pool, short_waits
from streams.models import PreparedRow
from streams.models.prepared import of_key
from streams.nouns.noun import BodyTypeName, Noun, column
from streams.sharding import alias_of
from streams.two_phase import decide
from streams.two_phase.content import checked_names
from streams.two_phase.handle import STATES, handle
from streams.two_phase.listing import is_by_key, rows_after
from streams.two_phase.lookup import alias_with
from streams.two_phase.prepare import look_up, prepare

router = Router(tags=["Two-phase"])

StateName = Literal["prepared", "committed", "rolled back", "manual"]
# Rows of one page that are read to find those of the state and of the businesses of the token.
LOOKED_AT = 1000
# Seconds for which a request is tried again on one database: the client can repeat it, too.
PATIENCE = 5.0


class NewPrepared(Request):
    """A message to be prepared; see the arguments of ``prepare()``."""

    biz: str | int
    biz_key: str | int
    topic: str
    body: Any = None
    body_type: BodyTypeName | None = None
    key: str | None = None
    tag: str = ""
    headers: dict[str, str] | None = None
    partition: int | None = None
    checker: str
    context: Any = None
    check_after: float | None = None


@dataclass(frozen=True, kw_only=True)
class PreparedShown(Noun):
    biz: str
    biz_key: str
    topic: str
    database: str = column("using")
    state: StateName
    created: bool
    message_id: int | None
    checks: int
    next_check_at: datetime | None
    decided_by: str | None
    decided_at: datetime | None


@router.post("/prepared", response={201: PreparedShown, 200: PreparedShown})
@needs("prepare")
@on_pool
def prepare_message(request: ApiRequest, message: NewPrepared) -> Status[PreparedShown]:
    """Keep a message until it is committed or rolled back. 200: it was prepared before.

    409 `already_rolled_back`, and 409 `prepared_conflict`: with other content, another checker or
    another context.
    The token needs `prepare` on the business, `send` on the topic and `check` on the checker.
    """
    caller = request.auth
    biz, biz_key = checked_names(message.biz, message.biz_key)
    caller.needs("prepare", biz)
    caller.needs("send", message.topic)
    caller.needs("check", message.checker)
    retrying.PATIENCE.set(PATIENCE)  # of this request: another transaction may have the key
    with _refused_by("already_rolled_back"), short_waits(alias_of(message.topic)):
        held = prepare(
            message.topic,
            body_in(message.body, message.body_type),
            biz=biz,
            biz_key=biz_key,
            checker=message.checker,
            key=message.key,
            tag=message.tag,
            headers=message.headers,
            partition=message.partition,
            context=message.context,
            check_after=message.check_after,
        )
    if held.created:  # the time is that of the database, which has not told it
        rows = PreparedRow.objects.using(held.using).filter(of_key(biz, biz_key))
        held = replace(held, next_check_at=rows.values_list("next_at", flat=True).first())
    return Status(201 if held.created else 200, PreparedShown.of(held))


@router.post("/prepared/{biz}/{path:biz_key}/commit", response=PreparedShown)
@needs("prepare", "{biz}")
@on_pool
def commit_prepared(
    request: ApiRequest, biz: str, biz_key: str, on: OfKey = None, nothing: NoFields | None = None
) -> PreparedShown:
    """Send the message. It may be repeated."""
    return _decided(request.auth, biz, biz_key, on, decide.commit, "already_rolled_back")


@router.post("/prepared/{biz}/{path:biz_key}/rollback", response=PreparedShown)
@needs("prepare", "{biz}")
@on_pool
def roll_back_prepared(
    request: ApiRequest, biz: str, biz_key: str, on: OfKey = None, nothing: NoFields | None = None
) -> PreparedShown:
    """Drop the message. It may be repeated."""
    return _decided(request.auth, biz, biz_key, on, decide.roll_back, "already_committed")


def _decided(
    caller: Caller,
    biz: str,
    biz_key: str,
    on: str | None,
    decision: Callable[..., PreparedRow],
    conflict: str,
) -> PreparedShown:
    """Make a decision; 409 with the code ``conflict`` if the other one was made before."""
    names = checked_names(biz, biz_key)
    using = alias_with(*names, alias_of_key(on))
    with _refused_by(conflict), short_waits(using):
        row = decision(*names, by=who(caller), using=using, patience=PATIENCE)
    return PreparedShown.of(handle(row, using))


@contextmanager
def _refused_by(conflict: str) -> Iterator[None]:
    """Raise Problem (409) with the code ``conflict`` where the opposite was decided before."""
    try:
        yield
    except AlreadyDecided as error:
        raise Problem(409, conflict, str(error)) from error


# A key may end like the two paths above.
@router.get(
    "/prepared/{biz}/{path:biz_key}/commit", response=PreparedShown, include_in_schema=False
)
@needs("prepare", "{biz}")
@on_pool
def show_prepared_commit(
    request: ApiRequest, biz: str, biz_key: str, on: OfKey = None
) -> PreparedShown:
    return _shown(biz, f"{biz_key}/commit", on)


@router.get(
    "/prepared/{biz}/{path:biz_key}/rollback", response=PreparedShown, include_in_schema=False
)
@needs("prepare", "{biz}")
@on_pool
def show_prepared_rollback(
    request: ApiRequest, biz: str, biz_key: str, on: OfKey = None
) -> PreparedShown:
    return _shown(biz, f"{biz_key}/rollback", on)


@router.get("/prepared/{biz}/{path:biz_key}", response=PreparedShown)
@needs("prepare", "{biz}")
@on_pool
def show_prepared(request: ApiRequest, biz: str, biz_key: str, on: OfKey = None) -> PreparedShown:
    return _shown(biz, biz_key, on)


def _shown(biz: str, biz_key: str, on: str | None) -> PreparedShown:
    return PreparedShown.of(look_up(biz, biz_key, alias_of_key(on), PATIENCE))


@router.get("/prepared", response=PageOfAll[PreparedShown])
@needs("prepare")
@on_pool
def list_prepared(
    request: ApiRequest,
    state: StateName | None = None,
    biz: str | None = None,
    after: str | None = None,
    limit: Limit = 100,
) -> PageOfAll[PreparedShown]:
    """List the prepared messages of the businesses of the token, without bodies.

    A page may have fewer than `limit`; the last one has no `next`.
    """
    if biz is not None:
        request.auth.needs("prepare", biz)
    states = None if state is None else [str(one) for one, name in STATES.items() if name == state]
    by_key = is_by_key(biz, states)

    def read(using: str, behind: Any, most: int) -> tuple[list[PreparedShown], Any]:
        rows = rows_after(behind, LOOKED_AT, using, biz=biz, states=states)
        found, last = _chosen(rows, request.auth, states, most)
        items = [PreparedShown.of(handle(row, using)) for row in found]
        if last is None or (last == rows[-1] and len(rows) < LOOKED_AT):
            return items, None
        return items, last.biz_key if by_key else last.pk

    return page_of_all(after, str if by_key else int, limit, read)


def _chosen(
    rows: list[PreparedRow], caller: Caller, states: Collection[str] | None, limit: int
) -> tuple[list[PreparedRow], PreparedRow | None]:
    """Return the rows of the page, and the last one that was looked at."""
    found: list[PreparedRow] = []
    last = None
    for row in rows:
        if len(found) == limit:
            break
        last = row
        if (states is None or row.state in states) and caller.may("prepare", row.biz):
            found.append(row)
    return found, last
