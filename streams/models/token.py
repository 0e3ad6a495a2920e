"""Defines ApiToken and ApiRight: who may call the HTTP API, and what with."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from streams.models.fields import HashField, NameField, TopicOrGroupField, UtcDateTimeField, UtcNow
from streams.models.namespaces import OwnManager
from streams.rules.names import MAX_NAME

# In characters: the part of a token that is not secret, and who has made it.
PREFIX = 8
MAX_WHO, MAX_OWNER = 255, 64
# Deliveries that a token may wait for at the same time.
HOLDS = 16
# At the end of a pattern it stands for any text; it is in no name.
ANY = "*"
# Between the topic and the group of a place.
OF_TOPIC = "/"


class Verb(models.TextChoices):
    SEND = "send", _("Send to a topic")
    CONSUME = "consume", _("Consume as a group")
    READ = "read", _("Read what a topic holds, without bodies")
    BODY = "body", _("Read bodies")
    DEAD = "dead", _("List and redrive dead letters")
    DISCARD = "dead!", _("Discard dead letters")
    MANAGE = "manage", _("Create and change topics and groups")
    PREPARE = "prepare", _("Prepare messages of a business")
    CHECK = "check", _("Name a checker of prepared messages")
    LOOK = "look", _("Look at the overview")
    STRESS = "stress", _("Run a stress test")


# On a topic and a group; the others are on a topic, a business, or nothing.
OF_GROUPS = (Verb.CONSUME, Verb.DEAD, Verb.DISCARD)


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    def valid(self) -> ApiTokenQuerySet:
        """Return those that are neither revoked nor expired."""
        lasts = Q(expires_at=None) | Q(expires_at__gt=UtcNow())
        return self.filter(lasts, revoked_at=None)


class ApiToken(models.Model):
    """What is known of a token: never the token itself, only its hash."""

    name = TopicOrGroupField(_("name"), max_length=MAX_NAME)
    prefix = NameField(_("prefix"), max_length=PREFIX, editable=False)
    hash = HashField(_("SHA-256 of the secret"), editable=False)
    created_by = models.CharField(_("created by"), max_length=MAX_WHO, editable=False)
    owner = models.CharField(
        _("key of the user"), max_length=MAX_OWNER, default="", blank=True, editable=False
    )
    created_at = UtcDateTimeField(_("created at"), default=UtcNow, editable=False)
    expires_at = UtcDateTimeField(
        _("expires at"), null=True, blank=True, help_text=_("Empty: never.")
    )
    last_used_at = UtcDateTimeField(_("last used at"), null=True, editable=False)
    revoked_at = UtcDateTimeField(_("revoked at"), null=True, editable=False)
    max_rate = models.PositiveIntegerField(
        _("requests a second"), null=True, blank=True, help_text=_("Of each process; empty: any.")
    )
    max_holds = models.PositiveIntegerField(
        _("held requests"), default=HOLDS, help_text=_("At the same time, in each process.")
    )

    objects = OwnManager.from_queryset(ApiTokenQuerySet)()

    class Meta:
        db_table = "ems_api_token"
        verbose_name = _("API token")
        verbose_name_plural = _("API tokens")
        default_permissions = ("view", "add", "change")
        permissions = (("revoke_apitoken", _("Can revoke API tokens")),)
        constraints = (models.UniqueConstraint(fields=["prefix"], name="ems_api_token_prefix"),)

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix})"

    def clean(self) -> None:
        if self.max_rate is not None:
            try:
                MinValueValidator(1)(self.max_rate)
            except ValidationError as error:
                raise ValidationError({"max_rate": error}) from error


class ApiRight(models.Model):
    """One verb that a token may use on the places that match a pattern."""

    token = models.ForeignKey(
        ApiToken, models.CASCADE, related_name="rights", verbose_name=_("token")
    )
    verb = models.CharField(_("verb"), max_length=8, choices=Verb.choices)
    pattern = NameField(
        _("on"),
        max_length=2 * MAX_NAME + 1,
        default=ANY,
        help_text=_("orders, orders.* or *; a topic and a group: orders/mail or orders/*"),
    )

    class Meta:
        db_table = "ems_api_right"
        verbose_name = _("right")
        verbose_name_plural = _("rights")
        default_permissions = ()
        constraints = (
            models.UniqueConstraint(fields=["token", "verb", "pattern"], name="ems_api_right_once"),
        )

    def __str__(self) -> str:
        return f"{self.verb}:{self.pattern}"

    def clean(self) -> None:
        if self.verb in OF_GROUPS and self.pattern != ANY and OF_TOPIC not in self.pattern:
            text = _("Give a topic and a group, such as orders/mail or orders/*.")
            raise ValidationError({"pattern": text})
        if self.pattern == ANY:
            return
        # The pattern of another right would match nothing, and that of LOOK would limit nothing.
        names = self.pattern.split(OF_TOPIC, 1) if self.verb in OF_GROUPS else [self.pattern]
        if self.verb == Verb.LOOK or not all(map(_may_match, names)):
            text = _("Give a name, the beginning of one with * at its end, or *; of look only *.")
            raise ValidationError({"pattern": text})


def matches(pattern: str, place: str) -> bool:
    """Tell whether a place, such as ``orders`` or ``orders/mail``, is one of the pattern's."""
    if pattern == ANY:
        return True
    if OF_TOPIC in pattern and OF_TOPIC in place:
        pairs = zip(pattern.split(OF_TOPIC, 1), place.split(OF_TOPIC, 1), strict=True)
        return all(_matches(one, name) for one, name in pairs)
    return _matches(pattern, place)


def _may_match(pattern: str) -> bool:
    """Tell whether a pattern may match a name, which has no blanks around it and no ``*``."""
    name = pattern.removesuffix(ANY)
    return bool(pattern) and ANY not in name and pattern == pattern.strip()


def _matches(pattern: str, name: str) -> bool:
    if pattern.endswith(ANY):
        return name.startswith(pattern.removesuffix(ANY))
    return name == pattern
