"""Defines DedupKey: a dedup key that was sent to a topic, until its window ends."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.fields import HashField, LooseForeignKey, UtcDateTimeField


class DedupKey(models.Model):
    """A dedup key of a topic, and the message that has taken it; without one it is free.

    The row is committed before it is locked: two transactions that insert the same key would wait
    for each other, and the server would end one of them as a deadlock.
    """

    topic = LooseForeignKey("ems.Topic", models.CASCADE, verbose_name=_("topic"))
    key_hash = HashField(_("SHA-256 of the key"))
    message_id = models.BigIntegerField(_("message id"), null=True)
    partition = models.PositiveIntegerField(_("partition"), default=0)
    expires_at = UtcDateTimeField(_("expires"))

    class Meta:
        db_table = "ems_dedup"
        verbose_name = _("dedup key")
        verbose_name_plural = _("dedup keys")
        default_permissions = ("view",)
        constraints = (models.UniqueConstraint(fields=["topic", "key_hash"], name="ems_dedup_key"),)
        indexes = (
            models.Index(fields=["expires_at"], name="ems_dedup_expiry"),
            models.Index(fields=["message_id"], name="ems_dedup_message"),
        )

    def __str__(self) -> str:
        return f"{self.topic_id}:{bytes(self.key_hash).hex()}"
