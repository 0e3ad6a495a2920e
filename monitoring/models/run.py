"""Defines Run: one run of a Spark job over one window."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import SecondsField, UtcDateTimeField, UtcNow


class RunState(models.TextChoices):
    RUNNING = "running", _("Running")
    DONE = "done", _("Done")
    FAILED = "failed", _("Failed")


class Run(models.Model):
    """One window of one job. It is done in the transaction that writes the window's rows.

    So a run that was killed leaves no part of a window: its row stays at running. The next run of
    the job begins where the last one that is done has ended, and marks this one as failed.
    """

    job = models.CharField(_("job"), max_length=32)
    state = models.CharField(
        _("state"), max_length=7, choices=RunState.choices, default=RunState.RUNNING
    )
    since = UtcDateTimeField(_("from"), null=True, blank=True)
    until = UtcDateTimeField(_("to"), null=True, blank=True)
    resume_at = UtcDateTimeField(
        _("next from"),
        null=True,
        blank=True,
        help_text=_("Where the next window begins."),
    )
    read = models.BigIntegerField(_("rows read"), null=True, blank=True)
    rows = models.BigIntegerField(_("rows written"), null=True, blank=True)
    missed = models.BigIntegerField(
        _("missed"),
        default=0,
        help_text=_("Messages of the window that were purged before they could be counted."),
    )
    seconds = SecondsField(_("took"), null=True, blank=True)
    about = models.CharField(
        _("about"),
        max_length=500,
        default="",
        db_default="",
        blank=True,
        help_text=_("What the run has done, or compared."),
    )
    error = models.TextField(_("error"), default="", blank=True)
    started_at = UtcDateTimeField(_("started"), default=UtcNow)
    finished_at = UtcDateTimeField(_("finished"), null=True, blank=True)

    class Meta:
        db_table = "ems_monitoring_run"
        verbose_name = _("run")
        verbose_name_plural = _("runs")
        default_permissions = ("view",)
        permissions = (("start_run", _("Can start Spark jobs")),)
        indexes = (models.Index(fields=["job", "state", "id"], name="ems_run_job"),)

    def __str__(self) -> str:
        return f"{self.job} #{self.pk}"
