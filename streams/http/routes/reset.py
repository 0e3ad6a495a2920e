"""Resets groups: a preview first, and then exactly what it has shown, once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ninja import Router
from pydantic import model_validator

from streams.conf import database
from streams.http.access import ApiRequest, needs
from streams.http.fields import Answer, Request
from streams.http.found import group_named
from streams.http.journal import note
from streams.http.offers import accepted, offer
from streams.http.problems import Problem
from streams.http.threads import on_pool
from streams.models import Cursor
from streams.operate.reset import Goal, Move, Reset, towards
from streams.operate.target import Target

router = Router(tags=["Groups"])

RESET = "reset"


class ResetRequest(Request):
    """Asks for a preview with ``to`` or ``undo``, and then for the reset with ``token``."""

    to: str | None = None
    undo: bool = False
    partition: int | None = None
    force: bool = False
    token: str | None = None

    @model_validator(mode="after")
    def _is_one_thing(self) -> ResetRequest:
        if self.token is None and (self.to is None) != self.undo:
            raise ValueError("give to, or undo: true; and then the token of the preview")
        return self


class ResetMove(Answer):
    """Says what the reset does in one partition, in messages."""

    partition: int
    position: int
    target: int
    again: int
    skipped: int
    fenced: int
    retries: int
    given_back: int
    restored: int


class ResetAnswer(Answer):
    """Is a preview, with the ``token`` that carries it out, or with ``done`` what was done.

    ``consumers`` are live: without ``force`` the reset is refused while there are any.
    """

    done: bool
    consumers: int
    moves: list[ResetMove]
    token: str | None = None


@router.post("/topics/{topic}/groups/{group}/reset", response=ResetAnswer)
@needs("manage", "{topic}")
@on_pool
def reset_group(request: ApiRequest, topic: str, group: str, wanted: ResetRequest) -> ResetAnswer:
    """Move a group: a first request previews, a second one with its `token` does exactly that.

    `to` is `earliest`, `latest`, an offset, `orders/2@1200`, a time, `+N` or `-N`. 409: the preview
    is older than ten minutes, or was carried out, or the group was reset otherwise since; or it has
    consumers.
    """
    using = database()
    row = group_named(topic, group, using)
    about = f"{using}:{row.pk}"
    live = row.clients.using(using).live().count()
    if wanted.token is None:
        goal, number = None, wanted.partition
        if not wanted.undo:
            target = Target.parse(wanted.to or "")
            goal, number = towards(target), target.only(row, number, using)
        moves = Reset(row, goal, using, number=number).preview()
        what = {"undo": wanted.undo, "number": number, "moves": _shown(moves)}
        token = offer(request.auth, RESET, about, what)
        return ResetAnswer(done=False, consumers=live, moves=_told(moves), token=token)
    what = accepted(request.auth, RESET, about, wanted.token)
    goal = None if what["undo"] else _exactly({number: at for number, at, _reset in what["moves"]})

    def consent(moves: Sequence[Move]) -> None:
        # Under the locks: of two requests with one token, the second one sees the first one here.
        if _shown(moves) != what["moves"]:
            raise Problem(
                409,
                "preview_used",
                "The group was reset since this preview, or has new partitions: ask for another.",
            )

    reset = Reset(row, goal, using, number=what["number"], force=wanted.force, consent=consent)
    moves = reset.run()
    told = "; ".join(str(move) for move in moves if not move.is_nothing)
    note(request.auth, row, f"reset: {told}")
    return ResetAnswer(done=True, consumers=live, moves=_told(moves))


def _shown(moves: Sequence[Move]) -> list[list[Any]]:
    """Return where the moves go, and the last reset of each cursor, which any reset changes."""
    return [
        [
            move.partition.number,
            move.target,
            move.cursor.reset_at.isoformat() if move.cursor.reset_at else None,
        ]
        for move in moves
    ]


def _exactly(targets: dict[int, int]) -> Goal:
    def goal(cursor: Cursor, position: int) -> int:
        return targets.get(cursor.partition.number, position)

    return goal


def _told(moves: Sequence[Move]) -> list[ResetMove]:
    return [
        ResetMove(
            partition=move.partition.number,
            position=move.position,
            target=move.target,
            again=move.again,
            skipped=move.skipped,
            fenced=len(move.fenced),
            retries=move.retries,
            given_back=move.given_back,
            restored=move.restored,
        )
        for move in moves
    ]
