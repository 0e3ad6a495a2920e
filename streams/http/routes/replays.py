"""Lists the replays to a group."""

from __future__ import annotations

from typing import Any

from ninja import Router

from streams.conf import database
from streams.http.access import ApiRequest, needs
from streams.http.fields import Answer
from streams.http.found import group_named
from streams.http.threads import on_pool
from streams.nouns.replay import ReplayPart
from streams.operate import replay

router = Router(tags=["Groups"])


class ReplayState(Answer):
    number: int
    messages: int
    parts: list[ReplayPart]


class Replays(Answer):
    items: list[ReplayState]


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
                parts=[ReplayPart.of(one) for one in parts],
            )
            for number, parts in by_number.items()
        ]
    )
