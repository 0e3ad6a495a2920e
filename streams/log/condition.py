"""Says how a group stands: what it does, what needs somebody, and since when. It reads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import TextChoices
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from streams.durations import brief, precise
from streams.log.calls import Call
from streams.log.lag import Lag

# A group whose oldest unfinished message is younger than this keeps up, whatever its rates are.
OLD = timedelta(minutes=10)
# It is stuck if it finishes at most this share of what comes in.
STUCK = 0.01
# Below this share of what comes in, a difference between in and out means nothing.
STEADY = 0.02
# A group that is paused for longer has been forgotten.
PAUSED_FOR = timedelta(days=1)


class Condition(TextChoices):
    """What a group does, in a word that every page, command and answer says."""

    BLOCKED = "blocked", gettext_lazy("blocked")  # by a failed message, in an ordered group
    AWAY = "broker away", gettext_lazy("broker away")  # of a relay, which waits for it
    STUCK = "stuck", gettext_lazy("stuck")  # consumers run, and nothing is finished
    UNATTENDED = "no consumer", gettext_lazy("no consumer")  # and messages wait
    FALLING_BEHIND = "falling behind", gettext_lazy("falling behind")
    CATCHING_UP = "catching up", gettext_lazy("catching up")
    HELD_BACK = "held back", gettext_lazy("held back")  # by its rate, and messages wait
    PAUSED = "paused", gettext_lazy("paused")
    RUNNING = "running", gettext_lazy("running")
    IDLE = "idle", gettext_lazy("idle")  # no consumer, and as far as EMS knows nothing waits


class Trouble(TextChoices):
    """Why a group needs somebody, in a word; the worst first."""

    BLOCKED = "blocked", gettext_lazy("blocked")
    AWAY = "broker away", gettext_lazy("broker away")
    STUCK = "stuck", gettext_lazy("stuck")
    UNATTENDED = "no consumer", gettext_lazy("no consumer")
    SLOW_CALL = "slow call", gettext_lazy("slow call")
    ALARM = "alarm", gettext_lazy("alarm")  # one fires that nobody has acknowledged
    DEAD = "dead letters", gettext_lazy("dead letters")  # that wait for a decision
    # Beyond the limit of an alarm rule, or falling behind; said unless a worse one says why.
    BEHIND = "behind", gettext_lazy("behind")
    PAUSED = "paused", gettext_lazy("paused")  # for longer than PAUSED_FOR


# How much a condition needs somebody, as pages colour it; the others: bad.
LEVELS = {
    Condition.RUNNING: "good",
    Condition.IDLE: "quiet",
    Condition.PAUSED: "warning",
    Condition.CATCHING_UP: "warning",
    Condition.HELD_BACK: "warning",
}
CONDITIONS, TROUBLES = list(Condition), list(Trouble)


@dataclass(frozen=True)
class Clearing:
    """What becomes of a backlog: "falls", "grows" or "steady"; None is unknown."""

    trend: str | None = None
    time: timedelta | None = None  # until nothing is behind, if it falls
    change: float | None = None  # messages a second; below 0 it falls


@dataclass(frozen=True)
class Known:
    """What is known of a group beside its lag; what is unknown, or is not, is None."""

    published: float | None = None  # messages a second that come into the topic
    consumed: float | None = None  # messages a second that the group finishes
    alarm: str | None = None  # what the oldest one that fires measures; none acknowledged it
    alarm_at: datetime | None = None  # since when its condition holds
    beyond_at: datetime | None = None  # since when it lags more than an alarm rule allows
    call: Call | None = None  # that is slow
    held_back: bool = False  # it has begun all that its rate allows by now


@dataclass(frozen=True)
class Need:
    """What is wrong with a group, and since when; None is unknown."""

    trouble: Trouble
    since: datetime | None


@dataclass(frozen=True)
class Standing:
    """How a group stands; ``needs``: why somebody should look, the worst first."""

    lag: Lag
    known: Known
    now: datetime
    clearing: Clearing
    condition: Condition
    needs: Sequence[Need]

    @property
    def trouble(self) -> list[str]:
        """Return the words of its troubles, the worst first."""
        return [need.trouble.value for need in self.needs]

    @property
    def level(self) -> str:
        """Return how much its condition needs somebody: bad, warning, good or quiet."""
        return LEVELS.get(self.condition, "bad")

    @property
    def order(self) -> tuple[int, int, float, int, str]:
        """Return a key that sorts groups by their need for somebody, the worst first."""
        lag, worst = self.lag, self.needs[0] if self.needs else None
        rank = TROUBLES.index(worst.trouble) if worst else len(TROUBLES)
        since = worst.since if worst else lag.age and self.now - lag.age
        waiting = (lag.behind or 0) + lag.waiting
        condition = CONDITIONS.index(self.condition)
        return rank, condition, (since or self.now).timestamp(), -waiting, lag.group.name

    def told(self, need: Need) -> str:
        """Return how long it has lasted, and what else there is to say of it.

        That is what an alarm measures, what is usual of a call, the time until a backlog clears.
        """
        lasted = "" if need.since is None else _("for %s") % brief(self.now - need.since)
        call, time, more = self.known.call, self.clearing.time, ""
        if need.trouble == Trouble.ALARM:
            more = self.known.alarm or ""
        elif need.trouble == Trouble.SLOW_CALL and call and call.usual is not None:
            more = _("usually %s") % precise(call.usual)
        elif need.trouble == Trouble.BEHIND and time is not None:
            more = _("clears in %s") % brief(time)
        return ", ".join(filter(None, (lasted, more)))


def standing(lag: Lag, now: datetime, known: Known = Known()) -> Standing:
    """Return how a group stands; without rates, no group is stuck, nor does its backlog fall."""
    future = clearing(lag.behind, known.published, known.consumed)
    condition = _condition(lag, future, known)
    needs = sorted(_needs(lag, now, known, condition), key=lambda n: TROUBLES.index(n.trouble))
    return Standing(lag, known, now, future, condition, needs)


def clearing(behind: int | None, published: float | None, consumed: float | None) -> Clearing:
    """Return what becomes of so many messages behind, at these rates."""
    if not behind or published is None or consumed is None:
        return Clearing()
    change = published - consumed
    if abs(change) <= STEADY * max(published, consumed):
        return Clearing("steady", None, change)
    if change > 0:
        return Clearing("grows", None, change)
    return Clearing("falls", timedelta(seconds=int(behind / -change)), change)


def may_lag(lag: Lag) -> bool:
    """Tell whether consumers run and old messages wait: the rates say what becomes of them."""
    runs = bool(lag.consumers) and not lag.group.paused and not lag.blocked
    return runs and bool(lag.behind) and lag.age is not None and lag.age > OLD


def _condition(lag: Lag, future: Clearing, known: Known) -> Condition:
    if lag.group.paused:
        return Condition.PAUSED
    if lag.blocked:
        return Condition.BLOCKED
    if lag.away is not None:
        return Condition.AWAY
    if not lag.consumers:
        return Condition.UNATTENDED if lag.behind or lag.waiting else Condition.IDLE
    if known.held_back and (lag.behind or lag.waiting):
        return Condition.HELD_BACK
    if not may_lag(lag):
        return Condition.RUNNING
    if known.consumed is not None and known.consumed <= STUCK * (known.published or 0):
        return Condition.STUCK
    if future.trend == "falls":
        return Condition.CATCHING_UP
    return Condition.RUNNING if future.trend is None else Condition.FALLING_BEHIND


def _needs(lag: Lag, now: datetime, known: Known, condition: Condition) -> Iterator[Need]:
    oldest = None if lag.age is None else now - lag.age
    if condition == Condition.BLOCKED:
        yield Need(Trouble.BLOCKED, lag.blocked_at)
    elif condition == Condition.AWAY and lag.away is not None:
        yield Need(Trouble.AWAY, now - lag.away)
    elif condition in (Condition.STUCK, Condition.UNATTENDED):
        yield Need(Trouble(condition.value), oldest)
    elif known.beyond_at or condition == Condition.FALLING_BEHIND:
        yield Need(Trouble.BEHIND, known.beyond_at or oldest)
    if known.call:
        yield Need(Trouble.SLOW_CALL, now - known.call.running)
    if known.alarm:
        yield Need(Trouble.ALARM, known.alarm_at)
    if lag.dead:
        yield Need(Trouble.DEAD, None if lag.dead_age is None else now - lag.dead_age)
    paused_at = lag.group.paused_at
    if paused_at and now - paused_at > PAUSED_FOR:
        yield Need(Trouble.PAUSED, paused_at)
