"""Tells who has handled what for a group: clients and their threads, as Spark has counted them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, F, Max, Q, QuerySet, Sum

from monitoring.live.levels import DAY, EPOCH, HOUR
from monitoring.live.limits import LISTED_AT_MOST
from monitoring.models import Consumption, ConsumptionLevel, Grain
from monitoring.sample.grain import floor
from monitoring.sample.series import Values
from streams.models import Consumer
from streams.observe.producers import who_is

# A longer time is read from hours and days: a minute has a row for each thread.
MINUTES_UP_TO = HOUR
# In clients: those that have a line of their own in the chart.
LINES = 5
# In rows: the threads of all clients together that are read.
THREADS = 1000
FIGURES = {
    "messages": Sum("consumed"),
    "failures": Sum(F("failed") + F("lost")),
    "lost": Sum("lost"),
    "claims": Sum("deliveries"),
    "seconds": Sum("busy_seconds"),
    "longest": Max("longest_seconds"),
}
# By the name in the URL: the figure by which the clients are ordered.
ORDERS = {"messages": "messages", "failures": "failures", "time": "seconds", "longest": "longest"}


@dataclass(frozen=True)
class Handled:
    """What somebody has handled."""

    messages: int
    failures: int  # attempts that failed, and messages that were lost with their process
    lost: int
    claims: int
    busy: timedelta  # from claims to their ends
    each: timedelta | None  # of this, for an attempt
    longest: timedelta | None  # from a claim to its end
    last_at: datetime | None  # the minute, hour or day of the newest

    @property
    def share_failed(self) -> float:
        return self.failures / (self.messages + self.failures)

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Handled:
        messages, failures, lost, claims = (
            int(row[name] or 0) for name in ("messages", "failures", "lost", "claims")
        )
        busy, attempts = timedelta(seconds=row["seconds"] or 0), messages + failures
        longest = None if row["longest"] is None else timedelta(seconds=row["longest"])
        each = busy / attempts if attempts else None
        return cls(messages, failures, lost, claims, busy, each, longest, row["last"])


@dataclass(frozen=True)
class HandledByClient:
    """What a client has handled, and the threads that have done most of it."""

    client_id: str
    host: str
    process: str
    is_live: bool
    handled: Handled
    threads_in_all: int
    threads: list[tuple[str, Handled]] = field(default_factory=list)

    @property
    def most(self) -> int:
        """Return the messages of the thread with most."""
        return max((one.messages for _name, one in self.threads), default=0)


@dataclass(frozen=True)
class HandledByGroup:
    """Who has handled what in a time, the first of the order first."""

    since: datetime
    whole: Handled
    clients: Sequence[HandledByClient]
    clients_in_all: int
    # Messages of each minute, hour or day, by client; "" stands for all other clients.
    grain: int
    times: Sequence[datetime]
    lines: Sequence[tuple[str, Values]]

    @property
    def most(self) -> int:
        """Return the messages of the client with most, of those that are listed."""
        return max((one.handled.messages for one in self.clients), default=0)


def handling(
    using: str, group: int, now: datetime, length: timedelta, order: str, client: str = ""
) -> HandledByGroup:
    """Return who has handled what since ``length`` ago, or one client of them.

    Six statements; times of more than an hour begin with an hour.
    """
    is_fine = length <= MINUTES_UP_TO
    since = floor(now - length, 1 if is_fine else Grain.HOUR)
    when = "minute" if is_fine else "start"
    rows: QuerySet[Any]
    if is_fine:
        rows = Consumption.objects.using(using).filter(group=group, minute__gte=since)
    else:
        rows = ConsumptionLevel.objects.using(using).filter(_starts(since, now), group=group)
    rows = (rows.filter(client_id=client) if client else rows).order_by()
    figures = {**FIGURES, "last": Max(when)}
    in_all = {"clients": Count("client_id", distinct=True)}
    sums = rows.aggregate(**figures, **in_all)
    by_client: Any = rows.values("client_id").annotate(
        **figures, threads=Count("thread", distinct=True)
    )
    descending = f"-{ORDERS[order]}"
    first = list(by_client.order_by(descending, "client_id")[:LISTED_AT_MOST])
    names = [row["client_id"] for row in first]
    by_thread = rows.filter(client_id__in=names).values("client_id", "thread")
    threads: dict[str, list[tuple[str, Handled]]] = {name: [] for name in names}
    for row in by_thread.annotate(**figures).order_by(descending, "client_id", "thread")[:THREADS]:
        threads[row["client_id"]].append((row["thread"], Handled.of(row)))
    clients = Consumer.objects.using(using).live().filter(group=group, client_id__in=names)
    live = set(clients.values_list("client_id", flat=True))
    drawn = by_client.order_by("-messages", "client_id").values_list("client_id", flat=True)
    grain, times, lines = _lines(using, group, now, length, list(drawn[:LINES]), client)
    return HandledByGroup(
        since=since,
        whole=Handled.of(sums),
        clients=[
            HandledByClient(
                row["client_id"],
                *who_is(row["client_id"])[:2],
                row["client_id"] in live,
                Handled.of(row),
                row["threads"],
                threads[row["client_id"]],
            )
            for row in first
        ],
        clients_in_all=sums["clients"],
        grain=grain,
        times=times,
        lines=lines,
    )


def _starts(since: datetime, now: datetime) -> Q:
    """Return the condition for the hours and days since then.

    Each is looked up in the unique key: a range of them would read the rows of all groups. Of
    about a day only hours are read, which say when somebody was at work last.
    """
    midnight = since + (EPOCH - since) % DAY
    if now - since < DAY + HOUR:
        return Q(grain=Grain.HOUR, start__in=_every(HOUR, since, now))
    hours, days = _every(HOUR, since, midnight - HOUR), _every(DAY, midnight, now)
    return Q(grain=Grain.HOUR, start__in=hours) | Q(grain=Grain.DAY, start__in=days)


def _every(step: timedelta, first: datetime, last: datetime) -> list[datetime]:
    return [first + n * step for n in range((last - first) // step + 1)]


def _lines(
    using: str, group: int, now: datetime, length: timedelta, names: Sequence[str], client: str
) -> tuple[int, list[datetime], list[tuple[str, Values]]]:
    """Return the messages of each minute, hour or day of these clients, and of the others."""
    rows: QuerySet[Any]
    if length <= MINUTES_UP_TO:
        grain, when = 1, "minute"
        rows = Consumption.objects.using(using).filter(group=group)
    else:
        grain, when = (Grain.HOUR if length <= 7 * DAY else Grain.DAY), "start"
        rows = ConsumptionLevel.objects.using(using).filter(group=group, grain=grain)
    times = _every(timedelta(minutes=grain), floor(now - length, grain), now)
    if client:
        rows = rows.filter(client_id=client)
    sums = {f"of_{n}": Sum("consumed", filter=Q(client_id=one)) for n, one in enumerate(names)}
    found = rows.filter(**{f"{when}__in": times}).order_by().values_list(when)
    by_time = {at: figures for at, *figures in found.annotate(Sum("consumed"), **sums)}
    values: list[Values] = [[None] * len(times) for _name in (*names, "")]
    known = [place for place, at in enumerate(times) if at in by_time]
    # Before the first figure and after the last one nothing is known.
    for place in range(known[0], known[-1] + 1) if known else ():
        every, *of_names = by_time.get(times[place], [0] * (len(names) + 1))
        parts = [int(one or 0) for one in of_names]
        for line, value in zip(values, [*parts, int(every) - sum(parts)], strict=True):
            line[place] = value
    lines = list(zip((*names, ""), values, strict=True))
    return grain, times, lines if any(lines[-1][1]) else lines[:-1]
