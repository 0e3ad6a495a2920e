"""Shows the overview: is anything wrong, and where?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.utils.translation import gettext_lazy as _

from monitoring.pages.base import Page


class OverviewPage(Page):
    name = "changelist"  # where the index of the admin leads to
    route = ""
    title = _("Overview")
    template_name = "ems_monitoring/overview.html"
    tab: ClassVar[str] = "changelist"

    def figures(self, **arguments: Any) -> Mapping[str, Any]:
        return {}
