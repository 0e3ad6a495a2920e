"""Lists all groups, those that need somebody first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext_lazy as _

from monitoring.figures.group import group_figures
from monitoring.figures.site import Site
from monitoring.live.limits import LISTED_AT_MOST
from monitoring.live.pipeline import percentiles
from monitoring.pages.base import FiguresPage


class GroupsPage(FiguresPage):
    name = "groups"
    route = "groups/"
    title = _("Groups")
    template_name = "ems_monitoring/groups.html"
    permissions = ("ems.view_consumergroup",)
    tab = "groups"

    def figures(self, **arguments: Any) -> Mapping[str, Any]:
        groups = group_figures(Site.read(self.using, self.now, alarms=self.alarms()))
        shown = groups[:LISTED_AT_MOST]
        return {
            "groups": shown,
            "groups_in_all": len(groups),
            "percentiles": percentiles(self.using, self.now, [one.pk for one in shown]),
        }
