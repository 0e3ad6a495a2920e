"""Defines the components of the pages as tags and filters; the page “Components” shows them all.

State, age, number and instant are those of ``ems_admin``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django import template
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from monitoring.charts import svg, text
from monitoring.charts.chart import DURATION, Chart
from monitoring.charts.scale import top
from monitoring.live.limits import COUNT_AT_MOST

register = template.Library()


@register.filter
def ems_rate(value: float | None) -> str:
    """Return messages a second, as a figure."""
    return _figure(text.rate(value))


@register.filter
def ems_count(value: int | None) -> str:
    """Return a count that ends at 10,000, as a figure."""
    return _figure(text.count(value, COUNT_AT_MOST), is_zero=not value)


@register.filter
def ems_size(value: float | None) -> str:
    """Return a number of bytes, as a figure."""
    return _figure(text.size(value))


@register.filter
def ems_share(value: float | None) -> str:
    """Return a part of one in per cent, as a figure."""
    return _figure(text.share(value))


@register.filter
def ems_periods(count: int, is_hourly: bool) -> str:
    """Return so many hours, or days, as a figure."""
    return _figure((_("%d h") if is_hourly else _("%d d")) % count, is_zero=not count)


@register.filter
def ems_value(value: float | None, unit: str = "") -> str:
    """Return a value of a chart with its unit."""
    if value is not None and unit == DURATION:
        from streams.admin.parts.figures import duration

        return duration(timedelta(seconds=value))
    return text.UNKNOWN if value is None else f"{text.number(value)}{unit}"


def _figure(shown: str, *, is_zero: bool = False) -> str:
    quiet = " ems-quiet" if is_zero or shown == text.UNKNOWN else ""
    return format_html('<span class="ems-number{}">{}</span>', quiet, shown)


@register.simple_tag
def ems_time(value: datetime | None, form: str = "H:i:s") -> str:
    """Return an instant in UTC; the script shows it in the browser's time if the URL asks that."""
    if value is None:
        return text.UNKNOWN
    from django.utils.dateformat import format as formatted

    shown = formatted(timezone.localtime(value, timezone.get_fixed_timezone(0)), form)
    return format_html(
        '<time class="ems-time" datetime="{}" data-form="{}" title="{}">{}</time>',
        *(value.isoformat(), form, f"{value:%Y-%m-%d %H:%M:%S} UTC", shown),
    )


@register.simple_tag
def ems_bar(part: float | None, whole: float | None, level: str = "quiet") -> str:
    """Return a bar; its figure must stand beside it."""
    return svg.bar(part or 0, whole or 0, level)


@register.simple_tag
def ems_sparkline(values: Sequence[float | None], label: Any) -> str:
    """Return a line of an hour; ``label`` says what it is."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    said = _("%(what)s: lowest %(lowest)s, highest %(highest)s, last %(last)s") % {
        "what": label,
        "lowest": text.number(min(known)),
        "highest": text.number(max(known)),
        "last": text.number(values[-1]),
    }
    return svg.sparkline(values, said)


@register.simple_tag
def ems_strip(stretches: Sequence[Any], length: int) -> str:
    """Return a row of days: what is archived, what waits, and gaps; its words say the same."""
    words = {"kept": _("archived"), "late": _("not archived yet"), "gap": _("gap")}
    parts = [
        (one.state, one.at, one.days, f"{_span(one)}: {words.get(one.state, _('nothing'))}")
        for one in stretches
    ]
    return svg.strip(parts, length, "; ".join(text for state, *_days, text in parts if state))


def _span(one: Any) -> str:
    """Return the days of a stretch, such as 2026-03-01 – 2026-03-31."""
    return f"{one.first}" if one.first == one.last else f"{one.first} – {one.last}"


@register.inclusion_tag("ems_monitoring/includes/figure.html")
def ems_figure(
    label: Any, value: Any, below: Any = "", spark: Any = (), level: str = "", url: str = ""
) -> dict[str, Any]:
    """Show a large figure with what it is, a line below it, and its last hour."""
    return {
        "label": label,
        "value": value,
        "below": below,
        "spark": spark,
        "level": level,
        "url": url,
    }


@register.simple_tag
def ems_badge(flag: Any) -> str:
    """Return the head of a flag as the charts have it; its text must stand beside it."""
    return svg.badge(flag)


@register.inclusion_tag("ems_monitoring/includes/chart.html", takes_context=True)
def ems_chart(context: Any, chart: Chart) -> dict[str, Any]:
    """Show lines over time with their legend, and a table of the same figures to open.

    With the flags of the page, if it has ``happened``: includes/happened.html lists them.
    """
    happened = context.get("happened")
    highest = top(chart.highest, chart.unit)
    long = len(chart.times) > 1 and (chart.times[-1] - chart.times[0]).days >= 2
    return {
        "chart": chart,
        "drawing": svg.lines(chart),
        "flags": svg.flags(chart, happened) if happened else "",
        "marks": [highest, highest / 2, 0],
        "form": "j M" if long else "H:i",
        "rows": _rows(chart),
        "data": {
            "unit": chart.unit,
            "stacked": chart.is_stacked,
            "times": [int(at.timestamp()) for at in chart.times],
            "lines": [{"label": str(one.label), "values": one.values} for one in chart.lines],
        },
    }


def _rows(chart: Chart) -> str:
    """Return the rows of the table of figures, in one go: a chart of a day has hundreds."""
    utc = timezone.get_fixed_timezone(0)
    return format_html_join(
        "",
        '<tr><th scope="row"><time class="ems-time" datetime="{}" data-form="Y-m-d H:i">{}</time>'
        "</th>{}</tr>",
        (
            (at.isoformat(), f"{at.astimezone(utc):%Y-%m-%d %H:%M}", _cells(values, chart.unit))
            for at, values in chart.rows
        ),
    )


def _cells(values: Sequence[float | None], unit: str) -> str:
    shown = ((ems_value(value, unit),) for value in values)
    return format_html_join("", '<td class="ems-right">{}</td>', shown)


@register.inclusion_tag("ems_monitoring/includes/empty.html")
def ems_empty(said: Any, command: str = "", more: Any = "") -> dict[str, Any]:
    """Say why there is nothing here, and what to do."""
    return {"said": said, "command": command, "more": more}


@register.inclusion_tag("ems_monitoring/includes/source.html")
def ems_source(kind: str, at: datetime | None) -> dict[str, Any]:
    """Say where figures are from and when they were read: "live", "sample" or "spark"."""
    names = {
        "live": pgettext("source of figures", "live"),  # of a client it means that it runs
        "sample": _("sampled each minute"),
        "spark": _("by Spark"),
    }
    return {"kind": names[kind], "at": at}


@register.filter
def ems_group_state(figures: Any) -> str:
    """Return why a group needs somebody, the worst first, and what it does."""
    from streams.admin.parts.figures import group_words

    needs = [(need.trouble, need.told) for need in figures.needs]
    return group_words(figures.condition, figures.level, needs)


@register.simple_tag(takes_context=True)
def ems_todo(context: Any, group: Any) -> str:
    """Return a link to where the worst trouble of a group ends, if the user may go there."""
    from django.urls import reverse

    from streams.admin.parts.columns import list_url
    from streams.log.condition import Trouble
    from streams.models import DeadMessage

    if not group.needs:
        return ""
    query = context["query"]
    here = reverse("admin:ems_monitoring_overview_group", args=[group.pk]) + query
    calls = context["may_see_groups"], _("See its calls"), f"{here}#clients"
    may, said, url = {
        Trouble.BLOCKED: (context["may_see_groups"], _("See the message that blocks it"), here),
        Trouble.AWAY: calls,
        Trouble.STUCK: calls,
        Trouble.UNATTENDED: (context["may_see_groups"], _("Run its consumer"), here),
        Trouble.SLOW_CALL: calls,
        # Who may not view alarms is not told of one.
        Trouble.ALARM: (
            True,
            _("Acknowledge the alarm"),
            reverse("admin:ems_monitoring_overview_alarms") + query,
        ),
        Trouble.DEAD: (
            context["may_see_letters"],
            _("Redrive or discard them"),
            list_url(DeadMessage, group=group.pk, state="waiting"),
        ),
        Trouble.BEHIND: calls,
        Trouble.PAUSED: (context["may_see_groups"], _("Resume it"), here),
    }[group.needs[0].trouble]
    if not may:
        return ""
    return format_html('<div class="ems-todo"><a href="{}">{}</a></div>', url, said)


@register.filter
def ems_trend(clearing: Any) -> str:
    """Return what becomes of a backlog in words, such as "clears in 4 min 49 s"."""
    from streams.admin.parts.figures import duration

    if clearing.trend is None:
        return ""
    if clearing.time is not None:
        return _("clears in %s") % duration(clearing.time)
    if clearing.trend == "grows":
        return _("grows by %s") % text.rate(clearing.change)
    return _("does not fall")


@register.simple_tag
def ems_place(ranked: Any) -> str:
    """Return the place of a topic, and by how many places it has gone up or down, or "new"."""
    place, moved = _figure(text.number(ranked.place)), ranked.moved or 0
    if ranked.is_new:
        new = format_html('<span class="ems-state ems-state-good">{}</span>', _("new"))
        return format_html('{}<div class="ems-below">{}</div>', place, new)
    if not moved:
        return place
    said = _("up by %s") if moved > 0 else _("down by %s")
    return format_html(
        '{}<div class="ems-below" title="{}"><span aria-hidden="true">{}\N{NO-BREAK SPACE}{}</span>'
        '<span class="visually-hidden">{}</span></div>',
        place,
        said % abs(moved),
        *("▲" if moved > 0 else "▼", abs(moved), said % abs(moved)),
    )


@register.simple_tag
def ems_change(compared: Any, is_new: bool = False) -> str:
    """Return by how much a figure has changed since the time before: in per cent, or from 0."""
    if is_new or compared.now is None or (not compared.now and not compared.before):
        return ""
    shown = _("before: 0") if compared.before == 0 else text.change(compared.change)
    return format_html('<div class="ems-below">{}</div>', shown)


@register.filter
def ems_get(found: Any, key: Any) -> Any:
    """Return what a dict has for a key, None if nothing."""
    return found.get(key)
