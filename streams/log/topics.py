"""Finds topics by name: looks them up, caches committed ones, creates missing ones."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial

from django.db import IntegrityError, transaction

from streams import conf, runtime_settings, signals
from streams.database.elsewhere import elsewhere
from streams.database.remembered import Fresh
from streams.database.retrying import retrying
from streams.database.transactions import (
    after_commit,
    in_test_case,
    in_transaction,
    manual,
    own_transaction,
    sees_the_past,
    supports_other_connections,
)
from streams.errors import UnknownTopic
from streams.rules.names import MAX_NAME, validated_name


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """What a send needs to know of a topic."""

    id: int
    name: str
    access: str
    partitions: tuple[tuple[int, int], ...]  # (id, number), by number
    until: float = field(compare=False)  # of the monotonic clock: how long this may be used


_cache: Fresh[tuple[str, str], TopicInfo] = Fresh()
forget = _cache.clear


def resolve(name: str, using: str, *, create: bool | None = None) -> TopicInfo:
    """Return the topic ``name``, at most FRESH_SECONDS old; create it if ``create`` allows it.

    ``create=None`` leaves that to autoCreateTopic. Raises UnknownTopic.

    Only committed rows are cached. A topic that the caller's transaction has created may be
    rolled back; with its id in the cache, every later message would be lost.
    """
    if cached := _cache.fresh((using, name)):
        return cached
    if in_transaction(using):
        _until, stale = _cache.get((using, name), (0.0, None))
        return _resolve_in_transaction(name, using, create, stale)
    return _remember(using, _read(name, using) or _create(name, using, create))


def _resolve_in_transaction(
    name: str, using: str, create: bool | None, stale: TopicInfo | None
) -> TopicInfo:
    if stale and (info := _read(name, using)) and info.id == stale.id:
        # The topic was committed before. A change that this read shows may be of the caller's
        # transaction, and be rolled back, so it is not cached. An old snapshot would hide that
        # the topic is denied or deleted by now, so a topic is then read on another connection.
        if sees_the_past(using):
            now = elsewhere(using, lambda: _read(name, using) or _create(name, using, create))
            return _remember(using, now)
        if info == stale:
            _remember(using, info)
        elif supports_other_connections(using) and not in_test_case(using):
            elsewhere(using, lambda: resolve(name, using, create=False))
        return info
    if in_test_case(using):
        return _read(name, using) or _create(name, using, create)
    if not supports_other_connections(using):
        topic = _read(name, using) or _create(name, using, create)
        if not manual(using):
            transaction.on_commit(lambda: _remember(using, topic), using=using)
        return topic
    # Another connection reads only what is committed, and commits what it creates before the
    # caller's transaction goes on. A topic created in the caller's transaction would, by its
    # unique name, block every other producer until that transaction ends.
    if info := elsewhere(using, lambda: _read(name, using)):
        return _remember(using, info)
    if info := _read(name, using):
        return info  # created by the caller's transaction, uncommitted
    return _remember(using, elsewhere(using, lambda: _create(name, using, create)))


def look_again(info: TopicInfo, using: str) -> TopicInfo | None:
    """Return the topic as it is committed now, whatever the caller's transaction sees, or None."""
    if sees_the_past(using):
        return elsewhere(using, lambda: _read(info.name, using))
    return _read(info.name, using)


def _remember(using: str, info: TopicInfo) -> TopicInfo:
    return _cache.keep((using, info.name), info, info.until, using)


def _read(name: str, using: str) -> TopicInfo | None:
    from streams.models import Partition

    until = time.monotonic() + conf.FRESH_SECONDS
    rows = list(
        Partition.objects.using(using)
        .filter(topic__name=name)
        .order_by("number")
        .values_list("id", "number", "topic_id", "topic__access")
    )
    if not rows:
        return None
    _id, _number, topic_id, access = rows[0]
    return TopicInfo(topic_id, name, access, tuple((row[0], row[1]) for row in rows), until)


def announce_topic(name: str, using: str) -> None:
    """Send the signal topic_created, once the transaction that creates the topic is committed."""
    from streams.models import Topic

    created = partial(signals.topic_created.send_robust, Topic, topic=name, using=using)
    after_commit(created, using)


def _create(name: str, using: str, create: bool | None = None) -> TopicInfo:
    from streams.models import Topic

    if not (runtime_settings.system("autoCreateTopic", using) if create is None else create):
        raise UnknownTopic(
            f"There is no topic {name!r}, and autoCreateTopic is off: create it in the admin."
        )

    validated_name(name, "topic", conf.longest_name(MAX_NAME))

    def work() -> TopicInfo:
        # Read in a transaction: another read may go to a replica that does not have it yet.
        try:
            with own_transaction(using):
                Topic.objects.using(using).create(name=name)
                announce_topic(name, using)
                info = _read(name, using)
        except IntegrityError:
            # Another process has created it at the same time, unless it cannot be created at all.
            with own_transaction(using):
                info = _read(name, using)
            if info is None:
                raise
        assert info is not None  # noqa: S101 - for mypy
        return info

    return retrying(work, using)
