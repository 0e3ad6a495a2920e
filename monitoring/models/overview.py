"""Defines Overview: the pages of the monitoring in the admin, with the permission to see them."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class Overview(models.Model):
    """The pages of the monitoring. It has no table."""

    class Meta:
        managed = False
        verbose_name = _("overview")
        verbose_name_plural = _("overview")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return str(self._meta.verbose_name)
