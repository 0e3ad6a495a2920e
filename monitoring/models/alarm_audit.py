"""Defines what the continuous audit keeps: how far it is, and what it has found."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import HashField, UtcDateTimeField, UtcNow
from streams.models.namespaces import OfNamespace, namespace

# In characters: what a finding keeps of its texts.
MAX_PLACE, MAX_DETAIL = 300, 500


class AuditSource(models.TextChoices):
    """Who has found it; sparkjobs/audit/noted.py writes the second."""

    AUDIT = "audit", _("Continuous audit")
    RECONCILE = "reconcile", _("Reconcile")


class AuditPlace(models.Model):
    """How far the continuous audit is in one partition, cursor, or the deliveries.

    What lies before ``offset`` was audited. What lies before ``seen_offset`` was there when the
    audit came by last: by the next time its deliveries have mostly ended.
    """

    namespace = models.CharField(_("namespace"), max_length=16, default=namespace, blank=True)
    stage = models.CharField(_("stage"), max_length=16)
    row = models.BigIntegerField(_("row"))
    offset = models.BigIntegerField(_("offset"), default=0)
    seen_offset = models.BigIntegerField(_("seen offset"), default=0)
    looked_at = UtcDateTimeField(_("looked at"), default=UtcNow)

    objects = OfNamespace["AuditPlace"]()

    class Meta:
        db_table = "ems_monitoring_audit_place"
        verbose_name = _("place of the audit")
        verbose_name_plural = _("places of the audit")
        default_permissions = ("view",)
        constraints = (
            models.UniqueConstraint(
                fields=["namespace", "stage", "row"], name="ems_audit_place_row"
            ),
        )

    def __str__(self) -> str:
        return f"{self.stage}:{self.row}:{self.offset}"


class AuditFinding(models.Model):
    """A finding once, however often it is seen: ``digest`` is that of its texts."""

    namespace = models.CharField(_("namespace"), max_length=16, default=namespace, blank=True)
    digest = HashField(_("digest"), editable=False)
    source = models.CharField(
        _("found by"), max_length=9, choices=AuditSource.choices, default=AuditSource.AUDIT
    )
    kind = models.CharField(_("kind"), max_length=32)
    place = models.CharField(_("place"), max_length=MAX_PLACE)
    detail = models.CharField(_("detail"), max_length=MAX_DETAIL)
    count = models.PositiveIntegerField(_("messages"), default=1)
    found_at = UtcDateTimeField(_("found at"), default=UtcNow)
    seen_at = UtcDateTimeField(_("last seen at"), default=UtcNow)

    objects = OfNamespace["AuditFinding"]()

    class Meta:
        db_table = "ems_monitoring_finding"
        verbose_name = _("finding of the audit")
        verbose_name_plural = _("findings of the audit")
        default_permissions = ("view",)
        constraints = (
            models.UniqueConstraint(fields=["namespace", "digest"], name="ems_finding_digest"),
        )
        indexes = (models.Index(fields=["seen_at"], name="ems_finding_seen"),)

    def __str__(self) -> str:
        return f"{self.kind}: {self.place}"
