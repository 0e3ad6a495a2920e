"""Lists the held keys of a group ordered by key, and finds one."""

from __future__ import annotations

from typing import Any

from ninja import Router

from streams.conf import database
from streams.consume.key_holders import key_holders
from streams.http.access import ApiRequest, Caller, needs
from streams.http.cursors import cursor, position
from streams.http.fields import Id, Limit, Page
from streams.http.found import group_named
from streams.http.problems import Problem
from streams.http.threads import on_pool
from streams.models import ConsumerGroup, HeldKey
from streams.nouns.held_key import HeldKeyShown

router = Router(tags=["Groups"])


@router.get("/topics/{topic}/groups/{group}/keys", response=Page[HeldKeyShown])
@needs("read", "{topic}")
@on_pool
def list_held_keys(
    request: ApiRequest, topic: str, group: str, after: str | None = None, limit: Limit = 100
) -> Page[HeldKeyShown]:
    """List the held keys of a group, in the order in which their messages have failed."""
    (behind,) = position(after, int) or (0,)
    rows = _of_group(group_named(topic, group, database())).filter(pk__gt=behind)
    found = key_holders(list(rows.order_by("pk")[: limit + 1]), database())
    items = [HeldKeyShown.of(one) for one in found[:limit]]
    return Page(items=items, next=cursor(items[-1].id) if len(found) > limit else None)


def held_key_numbered(caller: Caller, topic: str, group: str, number: Id) -> HeldKey:
    """Return a held key of the group; raises Problem (404)."""
    row: HeldKey | None = _of_group(group_named(topic, group, database())).filter(pk=number).first()
    if row is None:
        raise Problem(404, "unknown", f"The group {group} has no held key {number}.")
    return row


def _of_group(group: ConsumerGroup) -> Any:
    rows = HeldKey.objects.using(group._state.db).filter(group=group.pk)
    return rows.select_related("group__topic", "partition__topic")
