"""Deletes topics, request by request: it takes longer than one may."""

from __future__ import annotations

import time

from ninja import Router, Status

from streams.conf import database
from streams.database.clock import database_now
from streams.errors import TopicInUse, UnknownTopic
from streams.http.access import ApiRequest, needs
from streams.http.fields import Answer
from streams.http.journal import note, who
from streams.http.offers import accepted, offer
from streams.http.threads import on_pool
from streams.models import Access
from streams.operate.changes import change
from streams.operate.topic_deletion import SETTLED_SECONDS, TopicDeletion
from streams.operate.topics import topic_of

router = Router(tags=["Topics"])

# Where counts end: 10,000 means at least so many.
COUNT_AT_MOST = 10_000
# In seconds: for how long one request deletes. What is left needs another one.
DELETE_SECONDS = 5.0
DELETE = "delete"


class Deletion(Answer):
    """How far the deletion of a topic is, or with ``dry_run`` what it would delete.

    ``rows`` are by table, counted up to 10,000. Repeat the request with ``token`` after
    ``retry_after`` seconds until ``deleted`` is true.
    """

    topic: str
    deleted: bool
    obstacles: list[str] = []
    rows: dict[str, int] = {}
    token: str | None = None
    retry_after: int | None = None


@router.delete("/topics/{topic}", response={200: Deletion, 202: Deletion})
@needs("manage", "{topic}")
@on_pool
def delete_topic(
    request: ApiRequest,
    topic: str,
    dry_run: bool = False,
    force: bool = False,
    token: str | None = None,
) -> Status[Deletion]:
    """Delete a topic with all its messages and groups, in two requests or more.

    The first one closes it (`access`: `denied`), and its 202 has a `token`. Repeat the request with
    this token after `retry_after` seconds, until it answers 200. 409: it is not retired (`access`:
    `read-only`), or a group has not finished its messages; `force` ignores that.
    """
    using = database()
    closed = None if token is None else accepted(request.auth, DELETE, f"{topic}:{force}", token)
    try:
        row = topic_of(topic, using)
    except UnknownTopic:
        if closed is None:
            raise
        # It was deleted, and the answer was lost.
        return Status(200, Deletion(topic=topic, deleted=True))
    if closed is not None and closed[0] != row.pk:
        # The topic that the token was made for is deleted. Nobody has asked to force this one.
        raise TopicInUse(f"The topic {topic} is deleted, and this is another one of its name.")
    deletion = TopicDeletion(row, using, force=force)
    if dry_run:
        rows = deletion.tables(COUNT_AT_MOST)
        obstacles = [] if force else deletion.obstacles()
        return Status(200, Deletion(topic=topic, deleted=False, obstacles=obstacles, rows=rows))
    if closed is None or row.access != Access.DENIED:
        # Also one that was opened again since: producers may have looked it up.
        deletion.close()
        change(row, {"access": Access.DENIED}, using, who(request.auth))
        note(request.auth, row, "closed, to be deleted" + (" by force" if force else ""))
        closed, wait = (row.pk, database_now(using).timestamp()), float(SETTLED_SECONDS)
    else:
        wait = closed[1] + SETTLED_SECONDS - database_now(using).timestamp()
        if wait <= 0 and _finished(deletion):
            note(request.auth, row, "deleted")
            return Status(200, Deletion(topic=topic, deleted=True))
    # Valid for another while, however long the deletion takes.
    token = offer(request.auth, DELETE, f"{topic}:{force}", closed)
    seconds = max(1, int(wait + 0.999))
    return Status(202, Deletion(topic=topic, deleted=False, token=token, retry_after=seconds))


class _Enough(Exception):
    """The end of a deletion for this request."""


def _finished(deletion: TopicDeletion) -> bool:
    """Delete for at most DELETE_SECONDS; return whether nothing is left."""
    ends = time.monotonic() + DELETE_SECONDS

    def stop(name: str, rows: int) -> None:
        if time.monotonic() > ends:
            raise _Enough

    try:
        deletion.finish(stop)
    except _Enough:
        return False
    return True
