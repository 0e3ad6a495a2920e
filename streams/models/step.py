"""Defines Step: one time-driven step, and when it last ran."""

from __future__ import annotations

from datetime import timedelta

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from streams.models.fields import StepNameField, UtcDateTimeField, UtcNow
from streams.models.namespaces import OwnManager

# The names of the steps.
SEQUENCE, SWEEP, RETRIES, PURGE = "sequence", "sweep", "retries", "purge"
REDRIVES, PREPARED = "redrives", "prepared"


class StepQuerySet(models.QuerySet["Step"]):
    def win(self, name: str, every: timedelta) -> bool:
        """Tell whether the caller may run the step now: one caller may, once in ``every``.

        The time of a caller that may is recorded.
        """
        # A time in the future means that the clock was set back. Without this condition nobody
        # would run the step until the clock has reached that time again.
        due = Q(last_run_at__lte=UtcNow(-every)) | Q(last_run_at__gt=UtcNow(every))
        # Read first: usually another process has run the step, and then one plain read is enough.
        found = self.filter(name=name).annotate(due=due).values_list("due").first()
        if found is None:
            _step, created = self.get_or_create(name=name, defaults={"last_run_at": UtcNow()})
            return created
        return found[0] and bool(self.filter(due, name=name).update(last_run_at=UtcNow()))


class Step(models.Model):
    """When one time-driven step last ran."""

    name = StepNameField(_("name"), max_length=32)
    last_run_at = UtcDateTimeField(_("last run"))

    objects = OwnManager.from_queryset(StepQuerySet)()

    class Meta:
        db_table = "ems_step"
        verbose_name = _("step")
        verbose_name_plural = _("steps")
        default_permissions = ("view",)
        permissions = (("view_metrics", _("Can read the metrics for Prometheus")),)
        constraints = (models.UniqueConstraint(fields=["name"], name="ems_step_name"),)

    def __str__(self) -> str:
        return str(self.name)
