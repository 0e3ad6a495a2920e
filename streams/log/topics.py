"""Topics by name: looked up, cached once committed, created when missing."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from streams import conf, runtime_settings, signals
from streams.database.elsewhere import elsewhere
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


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """What a send needs to know of a topic."""

    id: int
    name: str
    access: str
    partitions: tuple[tuple[int, int], ...]  # (id, number), by number


_cache: dict[tuple[str, str], tuple[float, TopicInfo]] = {}


def forget(**kwargs: Any) -> None:
    """Drop what was read of topics."""
    _cache.clear()


os.register_at_fork(after_in_child=forget)


def resolve(name: str, using: str, *, create: bool | None = None) -> TopicInfo:
    """The topic of this name, at most FRESH_SECONDS old; created if ``create`` allows it.

    ``create=None`` leaves that to autoCreateTopic. Raises UnknownTopic.

    Only committed rows are cached. A topic that the caller's transaction has created may be
    rolled back; a cached id of it would then swallow every later message.
    """
    cached = _cache.get((using, name))
    if cached and time.monotonic() < cached[0]:
        return cached[1]
    if in_transaction(using):
        return _resolve_in_transaction(name, using, create, cached[1] if cached else None)
    return _remember(using, _read(name, using) or _create(name, using, create))


def _resolve_in_transaction(
    name: str, using: str, create: bool | None, stale: TopicInfo | None
) -> TopicInfo:
    if stale and (info := _read(name, using)) and info.id == stale.id:
        # It was committed before. What has changed may be the caller's own, and be rolled back.
        # A topic that is denied or deleted by now would be written to for as long as it is open.
        if sees_the_past(using):
            now = elsewhere(using, lambda: _read(name, using) or _create(name, using, create))
            return _remember(using, now)
        if info == stale:
            _remember(using, info)
        elif supports_other_connections(using):
            elsewhere(using, lambda: resolve(name, using, create=False))
        return info
    if in_test_case(using):
        return _read(name, using) or _create(name, using, create)
    if not supports_other_connections(using):
        topic = _read(name, using) or _create(name, using, create)
        if not manual(using):
            transaction.on_commit(lambda: _remember(using, topic), using=using)
        return topic
    # On a connection of its own: what that one reads is committed, and what it creates is
    # committed before the caller's transaction goes on. In the caller's transaction the unique
    # name would block every other producer until the end of it.
    if info := elsewhere(using, lambda: _read(name, using)):
        return _remember(using, info)
    if info := _read(name, using):
        return info  # the caller's own, uncommitted
    return _remember(using, elsewhere(using, lambda: _create(name, using, create)))


def look_again(info: TopicInfo, using: str) -> TopicInfo | None:
    """How the topic is now, for everybody, whatever the caller's transaction sees."""
    if sees_the_past(using):
        return elsewhere(using, lambda: _read(info.name, using))
    return _read(info.name, using)


def _remember(using: str, info: TopicInfo) -> TopicInfo:
    _cache[using, info.name] = (time.monotonic() + conf.FRESH_SECONDS, info)
    return info


def _read(name: str, using: str) -> TopicInfo | None:
    from streams.models import Partition

    rows = list(
        Partition.objects.using(using)
        .filter(topic__name=name)
        .order_by("number")
        .values_list("id", "number", "topic_id", "topic__access")
    )
    if not rows:
        return None
    _id, _number, topic_id, access = rows[0]
    return TopicInfo(topic_id, name, access, tuple((row[0], row[1]) for row in rows))


def announce_topic(name: str, using: str) -> None:
    """Send the signal topic_created, once the transaction that creates the topic is committed."""
    from streams.models import Topic

    created = partial(signals.topic_created.send_robust, Topic, topic=name, using=using)
    after_commit(created, using)


def _create(name: str, using: str, create: bool | None = None) -> TopicInfo:
    from streams.models import Topic

    if not (runtime_settings.system("autoCreateTopic", using) if create is None else create):
        raise UnknownTopic(
            _("There is no topic %r, and autoCreateTopic is off: create it in the admin.") % name
        )

    def work() -> TopicInfo:
        try:
            with own_transaction(using):
                Topic.objects.using(using).create(name=name)
                announce_topic(name, using)
        except IntegrityError:
            # Somebody else has created it at the same time, unless it cannot be created at all.
            if info := _read(name, using):
                return info
            raise
        info = _read(name, using)
        if info is None:
            raise UnknownTopic(_("The topic %r was deleted while it was created.") % name)
        return info

    return retrying(work, using)
