"""Puts the pages of the monitoring into the admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import URLPattern, path

from monitoring.models import Overview
from monitoring.pages.asked import Asked
from monitoring.pages.registry import PAGES
from streams.admin.switch import OnItsDatabase


@admin.register(Overview)
class OverviewAdmin(OnItsDatabase, admin.ModelAdmin):  # type: ignore[type-arg]  # generic in stubs
    """The Overview's line in the index of the admin, for whoever may see it."""

    kept_parameters = tuple(Asked.CHOICES)

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path(
                page.route,
                wrap(page.as_view(admin=self, pages=PAGES)),
                name=f"ems_monitoring_overview_{page.name}",
            )
            for page in PAGES
        ]

    def list_name(self, name: str) -> str:
        prefix = "ems_monitoring_overview_"
        tabs = {f"{prefix}{page.name}": page.tab or page.name for page in PAGES}
        return f"{prefix}{tabs[name]}"

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
