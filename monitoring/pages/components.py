"""Shows all components, for whoever writes a page; it has no tab."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.utils.translation import gettext_lazy as _

from monitoring.charts.chart import Chart, Line
from monitoring.figures.flags import LOOKS, Flag, Happened, Told
from monitoring.pages.base import FiguresPage

MINUTES = 60


class ComponentsPage(FiguresPage):
    name = "components"
    route = "components/"
    title = _("Components")
    template_name = "ems_monitoring/components.html"
    tab: ClassVar[str] = ""

    def figures(self, **arguments: Any) -> Mapping[str, Any]:
        wave = [800 + 300 * math.sin(n / 6) for n in range(MINUTES)]
        broken = [None if 20 < n < 30 else value for n, value in enumerate(wave)]
        times = [self.now - timedelta(minutes=MINUTES - n) for n in range(MINUTES)]
        lines = [Line("in", wave), Line("mail", broken), Line("bill", [v / 2 for v in wave])]
        return {
            "chart": Chart("rates", _("In and out"), "/s", times, lines),
            "none": Chart("none", _("In and out"), "/s", times, [Line("in", [None] * MINUTES)]),
            "happened": Happened(list(_flags(times))),
            "wave": wave,
            "broken": broken,
            "age": timedelta(minutes=4, seconds=49),
            "levels": ("bad", "warning", "good", "quiet"),
        }


def _flags(times: Sequence[datetime]) -> Iterator[Flag]:
    for number, look in enumerate(LOOKS, 1):
        at = times[12 * number]
        told = [Told(look, look.capitalize(), "one sentence about it", number, at, "mei", "#")]
        yield Flag(number, at, at, look, told)
