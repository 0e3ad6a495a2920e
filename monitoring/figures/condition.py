"""Says in what condition a group is: its state, and whether it keeps up with what comes in."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _

from monitoring.figures.speed import Clearing
from streams.log.lag import GroupState, Lag

# A group whose oldest unfinished message is younger than this keeps up, whatever its rates are.
OLD = timedelta(minutes=10)
# It is stuck if it finishes at most this share of what comes in.
STUCK = 0.01


class Condition(TextChoices):
    """Orders the conditions by their need for somebody, the worst first."""

    BLOCKED = "blocked", _("blocked")
    STUCK = "stuck", _("stuck")  # consumers run, and nothing is finished
    UNATTENDED = "unattended", _("no consumer")  # and messages wait
    FALLING_BEHIND = "falling behind", _("falling behind")
    PAUSED = "paused", _("paused")
    CATCHING_UP = "catching up", _("catching up")
    RUNNING = "running", _("running")
    IDLE = "idle", _("no consumer")


LEVELS = {
    Condition.BLOCKED: "bad",
    Condition.STUCK: "bad",
    Condition.UNATTENDED: "bad",
    Condition.FALLING_BEHIND: "bad",
    Condition.PAUSED: "warning",
    Condition.CATCHING_UP: "warning",
    Condition.RUNNING: "good",
    Condition.IDLE: "quiet",
}
ORDER = list(Condition)


def condition(
    lag: Lag, clearing: Clearing, published: float | None, consumed: float | None
) -> Condition:
    """Return the condition of a group; without samples it is the state alone."""
    if lag.state != GroupState.RUNNING:
        return Condition[lag.state.name]
    if not lag.behind or lag.age is None or lag.age <= OLD:
        return Condition.RUNNING
    if consumed is not None and consumed <= STUCK * (published or 0):
        return Condition.STUCK
    if clearing.trend == "falls":
        return Condition.CATCHING_UP
    return Condition.RUNNING if clearing.trend is None else Condition.FALLING_BEHIND
