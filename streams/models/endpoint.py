"""Defines CheckEndpoint: where EMS asks over HTTP what became of a prepared message."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.addresses import host_of, is_address
from streams.models.fields import TopicOrGroupField, UtcDateTimeField
from streams.models.namespaces import OwnManager
from streams.rules.names import MAX_CHECKER

# After so many failures in a row an endpoint is down, and is paused.
DOWN_AFTER = 5


class Dialect(models.TextChoices):
    EMS = "ems", "EMS"
    TRUSTMESSAGE = "trustmessage", "TrustMessage"


class CheckEndpoint(models.Model):
    """An address that answers for prepared messages. Only an operator enters one.

    A message names it and never brings an address of its own: EMS would be a way into the
    internal network.
    """

    name = TopicOrGroupField(_("name"), max_length=MAX_CHECKER)
    url = models.CharField(_("URL"), max_length=1000)
    dialect = models.CharField(
        _("dialect"), max_length=12, choices=Dialect.choices, default=Dialect.EMS
    )
    secret = models.CharField(
        _("secret"),
        max_length=255,
        default="",
        blank=True,
        help_text=_("Signs what EMS asks, in the dialect of EMS."),
    )
    timeout_seconds = models.PositiveIntegerField(
        _("timeout in seconds"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(60)],
        help_text=_("Empty: verifyTimeoutSeconds."),
    )
    allow_private = models.BooleanField(
        _("allow private addresses"),
        default=False,
        help_text=_("Without it, http and private, loopback and link-local addresses are refused."),
    )
    enabled = models.BooleanField(_("enabled"), default=True)
    failures = models.PositiveIntegerField(_("failures in a row"), default=0, editable=False)
    paused_until = UtcDateTimeField(_("paused until"), null=True, blank=True, editable=False)
    last_error = models.CharField(
        _("error"), max_length=500, default="", blank=True, editable=False
    )

    objects = OwnManager["CheckEndpoint"]()

    class Meta:
        db_table = "ems_check_endpoint"
        verbose_name = _("check endpoint")
        verbose_name_plural = _("check endpoints")
        permissions = (("test_checkendpoint", _("Can test check endpoints")),)
        constraints = (models.UniqueConstraint(fields=["name"], name="ems_check_endpoint_name"),)

    def __str__(self) -> str:
        return str(self.name)

    @property
    def target(self) -> str:
        """Return where it leads to, without a path or a query, which may be secret."""
        return host_of(self.url)

    @property
    def is_down(self) -> bool:
        return self.failures >= DOWN_AFTER

    def clean(self) -> None:
        if not is_address(self.url):
            text = _("Give a URL such as https://example.com/check, without user and password.")
            raise ValidationError({"url": text})
        if urlsplit(self.url).scheme == "http" and not self.allow_private:
            raise ValidationError({"url": _("http is for private addresses only: give https.")})
