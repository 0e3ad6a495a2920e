"""Defines AlarmChannel: where notifications of alarms are sent."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.models.addresses import host_of, is_address
from streams.models.fields import TopicOrGroupField, UtcDateTimeField
from streams.models.namespaces import OwnManager


class ChannelKind(models.TextChoices):
    EMAIL = "email", _("E-mail")
    WEBHOOK = "webhook", _("Webhook")
    SLACK = "slack", "Slack"
    TEAMS = "teams", "Microsoft Teams"
    DINGTALK = "dingtalk", "DingTalk"
    FEISHU = "feishu", "Feishu"


class AlarmChannel(models.Model):
    """An address. The URL of a chat is a secret like ``secret``: only its host is shown."""

    name = TopicOrGroupField(_("name"), max_length=64)
    kind = models.CharField(_("kind"), max_length=8, choices=ChannelKind.choices)
    enabled = models.BooleanField(_("enabled"), default=True)
    recipients = models.TextField(
        _("recipients"),
        default="",
        blank=True,
        help_text=_("E-mail addresses, separated by commas or lines."),
    )
    url = models.CharField(_("URL"), max_length=1000, default="", blank=True)
    secret = models.CharField(
        _("secret"),
        max_length=255,
        default="",
        blank=True,
        help_text=_("Signs what is sent: webhook, DingTalk, Feishu."),
    )
    allow_private = models.BooleanField(
        _("allow private addresses"),
        default=False,
        help_text=_("Without it, private, loopback and link-local addresses are refused."),
    )
    last_sent_at = UtcDateTimeField(_("last sent"), null=True, blank=True, editable=False)
    last_failed_at = UtcDateTimeField(_("last failed"), null=True, blank=True, editable=False)
    last_error = models.CharField(
        _("error"), max_length=500, default="", blank=True, editable=False
    )

    objects = OwnManager["AlarmChannel"]()

    class Meta:
        db_table = "ems_monitoring_alarm_channel"
        verbose_name = _("alarm channel")
        verbose_name_plural = _("alarm channels")
        permissions = (("test_alarmchannel", _("Can test alarm channels")),)
        constraints = (models.UniqueConstraint(fields=["name"], name="ems_alarm_channel_name"),)

    def __str__(self) -> str:
        return str(self.name)

    @property
    def target(self) -> str:
        """Return where it leads to, without what is secret: recipients, or a host."""
        if self.kind == ChannelKind.EMAIL:
            return ", ".join(self.addresses)
        return host_of(self.url)

    @property
    def addresses(self) -> list[str]:
        return self.recipients.replace(",", " ").split()

    @property
    def is_down(self) -> bool:
        """Tell whether the last attempt has failed."""
        if self.last_failed_at is None:
            return False
        return self.last_sent_at is None or self.last_failed_at > self.last_sent_at

    def clean(self) -> None:
        if self.kind == ChannelKind.EMAIL:
            self._clean_addresses()
        else:
            self._clean_url()

    def _clean_addresses(self) -> None:
        if not self.addresses:
            raise ValidationError({"recipients": _("An e-mail channel needs a recipient.")})
        for address in self.addresses:
            try:
                validate_email(address)
            except ValidationError as error:
                raise ValidationError({"recipients": error.messages}) from error

    def _clean_url(self) -> None:
        if not is_address(self.url):
            text = _("Give a URL such as https://example.com/hook, without user and password.")
            raise ValidationError({"url": text})
