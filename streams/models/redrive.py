"""Defines Redrive: many dead letters that are redriven at a rate, step by step."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.database.retrying import retrying
from streams.errors import InvalidValue
from streams.models.fields import UtcDateTimeField, UtcNow
from streams.models.namespaces import OfNamespace, namespace

# In messages a second.
SLOWEST, FASTEST = 0.01, 1000.0
# What was not redriven in a pause, such as one of all consumers, is not made up for.
MADE_UP_SECONDS = 10.0
MAX_TEXT = 255


class RedriveState(models.TextChoices):
    RUNNING = "running", _("Running")
    STOPPED = "stopped", _("Stopped")
    DONE = "done", _("Done")


class RedriveQuerySet(models.QuerySet["Redrive"]):
    def unfinished(self) -> RedriveQuerySet:
        return self.filter(state__in=[RedriveState.RUNNING, RedriveState.STOPPED]).order_by("pk")

    def running(self) -> RedriveQuerySet:
        return self.filter(state=RedriveState.RUNNING)


class Redrive(models.Model):
    """Dead letters to redrive: those of ``groups`` with ids up to ``upto``, or ``ids``.

    A step redrives some every few seconds, in any process. ``after`` moves in the transaction that
    redrives, so that each letter is counted once, whatever is killed. It ends after ``total``
    letters, where that is known.
    """

    namespace = models.CharField(_("namespace"), max_length=16, default=namespace, blank=True)
    about = models.CharField(_("dead letters"), max_length=MAX_TEXT)
    groups = models.JSONField(_("groups"), default=list)
    error_class = models.CharField(_("error class"), max_length=MAX_TEXT, default="", blank=True)
    ids = models.JSONField(_("ids"), null=True, blank=True)
    upto = models.BigIntegerField(_("up to id"))
    rate = models.FloatField(_("messages a second"))
    state = models.CharField(
        _("state"), max_length=7, choices=RedriveState.choices, default=RedriveState.RUNNING
    )
    total = models.BigIntegerField(_("total"), null=True, blank=True)
    after = models.BigIntegerField(_("after id"), default=0)
    done = models.BigIntegerField(_("redriven"), default=0)
    skipped = models.BigIntegerField(_("left out"), default=0)
    who = models.CharField(_("begun by"), max_length=MAX_TEXT)
    created_at = UtcDateTimeField(_("begun"), default=UtcNow)
    stepped_at = UtcDateTimeField(_("redriven until"), default=UtcNow)
    finished_at = UtcDateTimeField(_("finished"), null=True, blank=True)

    objects = OfNamespace.from_queryset(RedriveQuerySet)()

    class Meta:
        db_table = "ems_redrive"
        verbose_name = _("redrive")
        verbose_name_plural = _("redrives")
        default_permissions = ("view",)
        indexes = (models.Index(fields=["state"], name="ems_redrive_state"),)

    def __str__(self) -> str:
        return f"#{self.pk}: {self.about}"

    def due(self, now: datetime) -> float:
        """Return for how many seconds the next letters are due, since ``stepped_at``."""
        seconds: float = (now - self.stepped_at).total_seconds()
        most: float = max(MADE_UP_SECONDS, 1 / self.rate)
        return min(seconds, most)

    @property
    def per_second(self) -> str:
        return f"{self.rate:g}"

    @property
    def left(self) -> int | None:
        """Return how many letters are left; None if nobody has counted them."""
        return None if self.total is None else max(0, self.total - self.done - self.skipped)

    @property
    def time_left(self) -> timedelta | None:
        running = self.state == RedriveState.RUNNING and self.left is not None
        return timedelta(seconds=(self.left or 0) / self.rate) if running else None

    def stop(self) -> bool:
        """Stop the redrive. Return False if it is not running."""
        return self._turn(RedriveState.RUNNING, RedriveState.STOPPED)

    def resume(self) -> bool:
        """Go on with a stopped one; False if it is not stopped."""
        return self._turn(RedriveState.STOPPED, RedriveState.RUNNING, stepped_at=UtcNow())

    def _turn(self, before: RedriveState, after: RedriveState, **values: object) -> bool:
        using = self._state.db or "default"
        rows = Redrive.objects.using(using).filter(pk=self.pk, state=before)
        turned = bool(retrying(lambda: rows.update(state=after, **values), using))
        if turned:
            self.state = after
        return turned


def valid_rate(rate: float) -> float:
    """Return the rate; raises InvalidValue."""
    if not SLOWEST <= rate <= FASTEST:
        values = {"least": SLOWEST, "most": int(FASTEST)}
        raise InvalidValue(_("A rate is from %(least)g to %(most)d messages a second.") % values)
    return rate
