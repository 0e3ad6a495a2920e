"""Shows background work, by whichever door it comes in: what waits, what runs, what failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext_lazy as _

from monitoring.figures.group import group_figures
from monitoring.figures.site import Site
from monitoring.figures.work import is_used, work_figures
from monitoring.pages.base import FiguresPage


class WorkPage(FiguresPage):
    name = "work"
    route = "work/"
    title = _("Work")
    template_name = "ems_monitoring/work.html"
    permissions = ("ems.view_consumergroup", "ems.view_deadmessage", "ems.view_message")
    tab = "work"

    @classmethod
    def is_for(cls, user: Any) -> bool:
        return is_used() and super().is_for(user)

    def figures(self, **arguments: Any) -> Mapping[str, Any]:
        groups = group_figures(Site.read(self.using, self.now, alarms=self.alarms()))
        return {"doors": work_figures(groups, self.now, self.using)}

    def more(self, request: Any, figures: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"may_see_tasks": request.user.has_perm("ems_tasks.view_taskrun")}
