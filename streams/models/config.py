"""Defines SystemConfig: one run-time setting that overrides a default."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from streams.conf import NAMESPACE, RUN_TIME
from streams.models.fields import UtcDateTimeField, UtcNow


class SystemConfigQuerySet(models.QuerySet["SystemConfig"]):
    def overrides(self) -> dict[str, Any]:
        """Return the valid rows as {name: value}; an invalid one leaves the default in force."""
        rows = self.values_list("name", "value")
        return {name: value for name, value in rows if not problem(name, value)}


def problem(name: str, value: Any) -> str:
    """Return what is wrong with ``value`` for the setting ``name``, or an empty string."""
    setting = RUN_TIME.get(name)
    if setting is None:
        return gettext("There is no setting of this name.")
    expected = type(setting.default)
    if expected is str and type(value) is str:
        return "" if NAMESPACE.fullmatch(value) else gettext("At most 16 of a-z 0-9 . _ -")
    if type(value) is not expected and not (expected is float and type(value) is int):
        return gettext("This setting takes a value of type %s.") % expected.__name__
    if expected is bool:
        return ""
    if not value >= setting.at_least:  # also NaN
        return gettext("This number is too small: at least %d.") % setting.at_least
    if value > setting.at_most:
        return gettext("This number is too large: at most %d.") % setting.at_most
    return ""


def names() -> list[tuple[str, str]]:
    """Return the settings as choices. It is a function, so that a new one needs no migration."""
    return [(name, name) for name in RUN_TIME]


class SystemConfig(models.Model):
    """A run-time setting, which overrides the default in the code."""

    name = models.CharField(_("name"), max_length=64, choices=names)
    value = models.JSONField(_("value"))
    updated_at = UtcDateTimeField(_("changed"), default=UtcNow, editable=False)

    objects = SystemConfigQuerySet.as_manager()

    class Meta:
        db_table = "ems_system_config"
        verbose_name = _("system setting")
        verbose_name_plural = _("system settings")
        constraints = (models.UniqueConstraint(fields=["name"], name="ems_system_config_name"),)

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        self.updated_at = UtcNow()
        if kwargs.get("update_fields") is not None:  # update_or_create() names what it was given
            kwargs["update_fields"] = {*kwargs["update_fields"], "updated_at"}
        super().save(*args, **kwargs)

    def clean(self) -> None:
        if wrong := problem(self.name, self.value):
            raise ValidationError({"value": wrong})
