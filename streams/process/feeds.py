"""Makes the feeds of a process for the groups on one database, and leaves out what cannot run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from streams.consume.limits import Share
from streams.consume.registry import Registration
from streams.errors import ConfigurationError, StreamsError
from streams.logs import event
from streams.models import Mode
from streams.process.broadcast.running_group import RunningBroadcastGroup
from streams.process.running_group import RunningGroup
from streams.process.runtime import Launch

logger = logging.getLogger("streams.supervisor")


class NoGroup(Exception):
    """No group of one database can run, where the process has groups on another one."""


def make(
    registrations: Sequence[Registration],
    using: str,
    launch: Launch,
    share: Share,
) -> list[RunningGroup]:
    """Return the feeds of ``registrations``, without those that cannot run, and say which.

    If all fail, NoGroup is raised; if they are all of the process, ConfigurationError, or the error
    of the only one.
    """
    overrides, client = launch.overrides, launch.client
    if share.of > 1:
        overrides = replace(overrides, threads=None)  # they are shared
    feeds: list[RunningGroup] = []
    try:
        for registration in registrations:
            try:
                if registration.mode == Mode.BROADCAST:
                    feeds.append(RunningBroadcastGroup(registration, using, overrides, client))
                else:
                    feeds.append(RunningGroup(registration, using, overrides))
            except StreamsError as error:
                if share.of == 1:
                    raise
                logger.error(
                    "%s on %s is left out: %s",
                    *(registration.group, registration.topic, error),
                    extra=event(
                        "group.left_out",
                        group=registration.group,
                        topic=registration.topic,
                        error=type(error).__name__,
                        database=using,
                    ),
                )
    except BaseException:
        close(feeds)
        raise
    if not feeds:
        kind = ConfigurationError if share.whole else NoGroup
        raise kind("No group can run: see the errors above.")
    return feeds


def close(feeds: Iterable[RunningGroup]) -> None:
    """Free the names of the broadcast consumers."""
    for feed in feeds:
        if isinstance(feed, RunningBroadcastGroup):
            feed.close()
