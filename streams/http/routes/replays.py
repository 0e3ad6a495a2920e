"""Replays a part of the log to a group."""

from __future__ import annotations

from typing import Any

from ninja import Router, Status
from pydantic import model_validator

from streams.conf import database
from streams.errors import InvalidTarget
from streams.http.access import ApiRequest, needs
from streams.http.fields import Answer, Id, Request
from streams.http.found import group_named
from streams.http.journal import note
from streams.http.threads import on_pool
from streams.operate import replay
from streams.operate.target import Target

router = Router(tags=["Groups"])


class NewReplay(Request):
    """Names what is replayed: ``from`` … before ``to``, offsets or times; or one message."""

    from_: str | None = None
    to: str | None = None
    message_id: Id | None = None
    partition: int | None = None
    dry_run: bool = False

    model_config = {**Request.model_config, "alias_generator": lambda name: name.rstrip("_")}

    @model_validator(mode="after")
    def _is_one_thing(self) -> NewReplay:
        is_part = self.from_ is not None and self.to is not None
        is_any = self.from_ is not None or self.to is not None
        if is_any != is_part or is_part == (self.message_id is not None):
            raise ValueError("give from and to, or message_id")
        return self


class ReplayPart(Answer):
    """Is a replay in one partition: the offsets ``first`` … ``end`` - 1."""

    partition: int
    first: int
    end: int
    given_out: int
    open: int
    state: str


class ReplayState(Answer):
    """Is a replay; ``number`` is null if it was not begun (``dry_run``)."""

    number: int | None
    messages: int
    parts: list[ReplayPart]


class Replays(Answer):
    items: list[ReplayState]


class ReplayCancelled(Answer):
    """Says how many messages of a replay were not given out."""

    number: int
    left_out: int


@router.post(
    "/topics/{topic}/groups/{group}/replays", response={201: ReplayState, 200: ReplayState}
)
@needs("manage", "{topic}")
@on_pool
def start_replay(
    request: ApiRequest, topic: str, group: str, wanted: NewReplay
) -> Status[ReplayState]:
    """Give a part of the log to the group again, beside what it reads."""
    using = database()
    row = group_named(topic, group, using)
    if wanted.message_id is not None:
        found = replay.span_of(row, wanted.message_id, using)
    else:
        first, end = _absolute(wanted.from_ or ""), _absolute(wanted.to or "")
        found = replay.spans(row, first, end, using, number=wanted.partition)
    number = None if wanted.dry_run else replay.start(row, found, using)
    if number is not None:
        note(request.auth, row, f"replay {number} begun: {', '.join(map(str, found))}")
    parts = [
        ReplayPart(
            partition=span.partition.number,
            first=span.first,
            end=span.end,
            given_out=0,
            open=0,
            state="running",
        )
        for span in found
    ]
    answer = ReplayState(number=number, messages=sum(map(len, found)), parts=parts)
    return Status(200 if wanted.dry_run else 201, answer)


@router.get("/topics/{topic}/groups/{group}/replays", response=Replays)
@needs("read", "{topic}")
@on_pool
def list_replays(request: ApiRequest, topic: str, group: str) -> Replays:
    """List the replays of a group, the newest first; ended ones until the next one begins."""
    row = group_named(topic, group, database())
    by_number: dict[int, list[Any]] = {}
    for one in replay.replays([row], database()):
        by_number.setdefault(one.number, []).append(one)
    return Replays(
        items=[
            ReplayState(
                number=number,
                messages=sum(len(one.span) for one in parts),
                parts=[_part(one) for one in parts],
            )
            for number, parts in by_number.items()
        ]
    )


@router.delete("/topics/{topic}/groups/{group}/replays/{int:number}", response=ReplayCancelled)
@needs("manage", "{topic}")
@on_pool
def cancel_replay(request: ApiRequest, topic: str, group: str, number: int) -> ReplayCancelled:
    """End a replay. What is in hand is finished."""
    row = group_named(topic, group, database())
    left_out = replay.cancel(row, number, database())
    note(request.auth, row, f"replay {number} cancelled: {left_out} messages not given out")
    return ReplayCancelled(number=number, left_out=left_out)


def _part(one: replay.Replay) -> ReplayPart:
    return ReplayPart(
        partition=one.span.partition.number,
        first=one.span.first,
        end=one.span.end,
        given_out=one.given_out,
        open=one.open,
        state=one.state,
    )


def _absolute(text: str) -> Target:
    target = Target.parse(text)
    if not target.is_absolute:
        raise InvalidTarget(f"A replay is from an offset or a time to another, not {text!r}.")
    return target
