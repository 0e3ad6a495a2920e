"""Defines ShadowRun and ShadowCall: a shadow replay, and what each call of its handler has done."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import (
    HashField,
    LooseForeignKey,
    TopicOrGroupField,
    UtcDateTimeField,
    UtcNow,
)
from streams.models.namespaces import OwnManager
from streams.names import MAX_NAME


class ShadowRun(models.Model):
    """Holds one shadow replay; without ``finished_at`` it still runs, or has been ended."""

    name = TopicOrGroupField(_("name"), max_length=MAX_NAME)
    topic = TopicOrGroupField(_("topic"), max_length=MAX_NAME)
    group = TopicOrGroupField(_("consumer group"), max_length=MAX_NAME)
    # [number of the partition, first offset, offset after the last one] of each partition.
    spans = models.JSONField(_("spans"))
    batch = models.PositiveIntegerField(_("batch"), null=True, blank=True)
    handler = models.CharField(_("handler"), max_length=255)
    code = models.CharField(_("version of the code"), max_length=255, blank=True)
    started_by = models.CharField(_("started by"), max_length=255)
    started_at = UtcDateTimeField(_("started at"), default=UtcNow)
    finished_at = UtcDateTimeField(_("finished at"), null=True, blank=True)
    messages = models.PositiveBigIntegerField(_("messages"), default=0)
    failed = models.PositiveBigIntegerField(_("failed"), default=0)
    missing = models.PositiveBigIntegerField(_("missing"), default=0)
    error = models.TextField(_("error"), default="", blank=True)

    objects = OwnManager[Any]()

    class Meta:
        db_table = "ems_shadow"
        verbose_name = _("shadow replay")
        verbose_name_plural = _("shadow replays")
        default_permissions = ()
        constraints = (models.UniqueConstraint(fields=["name"], name="ems_shadow_name"),)
        indexes = (models.Index(fields=["started_at"], name="ems_shadow_started"),)

    def __str__(self) -> str:
        return str(self.name)

    @property
    def state(self) -> str:
        """Return "finished", "stopped" by an error, or "unfinished"."""
        if self.error:
            return "stopped"
        return "finished" if self.finished_at else "unfinished"


class ShadowCall(models.Model):
    """Holds what one call has written, sent and raised; ``details`` is JSON, compressed by zlib."""

    run = LooseForeignKey("ems.ShadowRun", verbose_name=_("shadow replay"))
    partition = models.PositiveIntegerField(_("partition"))
    first_offset = models.BigIntegerField(_("first offset"))
    last_offset = models.BigIntegerField(_("last offset"))
    digest = HashField(_("SHA-256 of all that it did"))
    microseconds = models.PositiveBigIntegerField(_("duration in microseconds"))
    details = models.BinaryField(_("details"))

    class Meta:
        db_table = "ems_shadow_call"
        verbose_name = _("call of a shadow replay")
        verbose_name_plural = _("calls of shadow replays")
        default_permissions = ()
        constraints = (
            models.UniqueConstraint(
                fields=["run", "partition", "first_offset"], name="ems_shadow_call_place"
            ),
        )

    def __str__(self) -> str:
        return f"{self.run_id}:{self.partition}@{self.first_offset}"
