"""Defines StressRun: a stress test that was asked for over HTTP, and what it has found."""

from __future__ import annotations

from datetime import timedelta

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import UtcDateTimeField, UtcNow
from streams.models.namespaces import OfNamespace, namespace

# A run that has not ended after this time was killed, or its host is gone.
LONGEST = timedelta(minutes=5)
# All topics of a run begin with it, so that it never touches one of the project.
PREFIX = "stress."
# Runs that are kept.
KEPT = 100


class StressRunQuerySet(models.QuerySet["StressRun"]):
    def running(self) -> StressRunQuerySet:
        return self.filter(finished_at=None, started_at__gt=UtcNow(-LONGEST))


class StressRun(models.Model):
    """The load of a run, and its result once it is measured.

    It is finished when its topic is deleted again. ``error`` says why there is no result.
    """

    namespace = models.CharField(_("namespace"), max_length=16, default=namespace, blank=True)
    load = models.JSONField(_("load"))
    result = models.JSONField(_("result"), null=True)
    error = models.CharField(_("error"), max_length=1000, default="", blank=True)
    who = models.CharField(_("begun by"), max_length=255)
    started_at = UtcDateTimeField(_("started at"), default=UtcNow)
    finished_at = UtcDateTimeField(_("finished at"), null=True)

    objects = OfNamespace.from_queryset(StressRunQuerySet)()

    class Meta:
        db_table = "ems_stress_run"
        verbose_name = _("stress test")
        verbose_name_plural = _("stress tests")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"#{self.pk}"
