"""Defines the runtime: what the threads of a consumer process share on one database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from streams.consume.limits import Overrides
from streams.process.arrivals import Arrivals
from streams.process.broadcast.file import DEFAULT_NAME
from streams.process.pool import Pool
from streams.process.running_group import RunningGroup
from streams.process.shared.activity import Activity
from streams.process.shared.client import Client
from streams.process.shared.connections import IdleLimit
from streams.process.shared.gate import Gate
from streams.process.shared.in_flight import InFlight
from streams.process.shared.progress_file import NoFile, ProgressFile
from streams.process.shared.shortage import Shortage
from streams.process.shared.stopping import Stopping


@dataclass(frozen=True)
class Launch:
    """How a process was started, and what it has once, however many databases it consumes from."""

    overrides: Overrides = field(default_factory=Overrides)
    drain: bool = False
    client: str = DEFAULT_NAME  # in the broadcast groups
    lifecycle: Stopping = field(default_factory=Stopping)
    activity: Activity = field(default_factory=Activity)
    suspects: Gate = field(default_factory=Gate)


@dataclass(frozen=True)
class Runtime:
    """What the workers and keepers of one database share. Each takes from it what it needs."""

    using: str
    drain: bool
    lifecycle: Stopping
    activity: Activity
    suspects: Gate  # of all groups: they run one after the other
    pool: Pool
    client: Client
    held: InFlight
    shortage: Shortage
    idle_limit: IdleLimit
    file: ProgressFile | NoFile
    arrivals: Arrivals

    @classmethod
    def of(
        cls,
        feeds: Sequence[RunningGroup],
        using: str,
        launch: Launch,
        idle_limit: IdleLimit,
        file: ProgressFile | NoFile = NoFile(),  # noqa: B008 - it has nothing
    ) -> Runtime:
        for feed in feeds:
            idle_limit.allow(feed.consume_timeout())
        once = launch.drain, launch.lifecycle, launch.activity, launch.suspects
        client = Client([feed.group.pk for feed in feeds], using, file.name)
        shortage = Shortage(using)
        pool = Pool(feeds)
        arrivals = Arrivals(pool, using)
        return cls(using, *once, pool, client, InFlight(), shortage, idle_limit, file, arrivals)

    @property
    def feeds(self) -> Sequence[RunningGroup]:
        return self.pool.feeds

    def may_go_on(self) -> bool:
        """Tell whether a handler call may begin: the lease is kept, and nobody asks to stop."""
        return self.client.alive and not self.lifecycle.stopping
