"""Draws lines and bars as SVG. The stylesheet gives the colours, so there is no inline style."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from monitoring.charts.chart import Chart
from monitoring.charts.scale import top

# In units of the drawing, which is stretched to the width of its place.
WIDTH, HEIGHT = 600, 160
SPARK_WIDTH, SPARK_HEIGHT = 120, 32
BAR_WIDTH = 100


def runs(values: Sequence[float | None]) -> Iterator[list[tuple[int, float]]]:
    """Yield the unbroken parts of a line, as (number, value): what is unknown is a gap."""
    run: list[tuple[int, float]] = []
    for number, value in enumerate(values):
        if value is not None:
            run.append((number, value))
        elif run:
            yield run
            run = []
    if run:
        yield run


def path(values: Sequence[float | None], width: int, height: int, highest: float) -> str:
    """Return the path of a line; a value alone between gaps is a short dash."""
    step = width / max(1, len(values) - 1)
    # A pixel above and below, so that a line at the edge is whole.
    scale = (height - 2) / highest
    parts = []
    for run in runs(values):
        points = [(number * step, height - 1 - value * scale) for number, value in run]
        if len(points) == 1:
            ((x, y),) = points
            half = max(step / 4, width / 100)  # of hundreds of values, a quarter is not seen
            points = [(x - half, y), (x + half, y)]
        parts.append("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points))
    return "".join(parts)


def area(values: Sequence[float | None], width: int, height: int, highest: float) -> str:
    """Return the path around what is below a line."""
    step = width / max(1, len(values) - 1)
    scale = (height - 2) / highest
    parts = []
    for run in runs(values):
        points = [(number * step, height - 1 - value * scale) for number, value in run]
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        parts.append(f"M{points[0][0]:.1f} {height}L{line}L{points[-1][0]:.1f} {height}Z")
    return "".join(parts)


def lines(chart: Chart) -> SafeString:
    """Return the drawing of a chart, without its axes, which are text beside it."""
    size = (WIDTH, HEIGHT, top(chart.highest, chart.unit))
    layers = list(enumerate(chart.drawn))
    # The highest layer first: each one below covers its part of it.
    areas = format_html_join(
        "",
        '<path class="ems-cover" d="{1}"/><path class="ems-layer ems-layer-{0}" d="{1}"/>',
        ((n % 6, area(values, *size)) for n, values in reversed(layers) if chart.is_stacked),
    )
    drawn = areas + format_html_join(
        "",
        '<path class="ems-line ems-line-{}" d="{}"/>',
        ((n % 6, path(values, *size)) for n, values in layers),
    )
    grid = format_html_join(
        "",
        '<path class="ems-gridline" d="M0 {}H{}"/>',
        ((y, WIDTH) for y in (1, HEIGHT // 2, HEIGHT - 1)),
    )
    return format_html(
        '<svg class="ems-plot" viewBox="0 0 {} {}" preserveAspectRatio="none" aria-hidden="true"'
        ' focusable="false">{}{}</svg>',
        *(WIDTH, HEIGHT, grid, drawn),
    )


# The heads of flags, around 0 0, where their numbers stand.
HEADS = {
    "alarm": "M-9 -9H9V4L0 11L-9 4Z",
    "act": "M0 -9A9 9 0 1 1 0 9A9 9 0 1 1 0 -9Z",
    "deployment": "M-8 -8H8V8H-8Z",
}
FLAG_HEIGHT = 22


def flags(chart: Chart, happened: Any) -> SafeString:
    """Return the flags of a chart, each at its time: a head with its number over a line.

    They are for eyes and the mouse; the list that they lead to is for all. The script moves them
    where a chart is zoomed.
    """
    if not happened.flags and not happened.ticks:
        return SafeString("")
    first, last = chart.times[0].timestamp(), chart.times[-1].timestamp()
    whole = max(1.0, last - first)

    def place(at: Any) -> str:
        return f"{100 * min(1.0, max(0.0, (at.timestamp() - first) / whole)):.2f}"

    drawn = (
        (
            *(place(flag.at), flag.at.timestamp(), flag.until.timestamp(), flag.look),
            *(flag.number, flag.number, FLAG_HEIGHT, head(flag)),
        )
        for flag in happened.flags
    )
    ticks = format_html_join(
        "",
        '<svg x="{}%" data-at="{}" class="ems-flag ems-flag-deployment ems-tick">'
        '<svg y="100%"><line y1="-7" y2="0"/></svg></svg>',
        ((place(at), at.timestamp()) for at in happened.ticks),
    )
    return format_html(
        '<svg class="ems-flags" aria-hidden="true" focusable="false">{}{}</svg>',
        ticks,
        format_html_join(
            "",
            '<svg x="{}%" data-at="{}" data-until="{}" class="ems-flag ems-flag-{}" data-flag="{}">'
            '<a href="#ems-flag-{}" tabindex="-1"><line y1="{}" y2="100%"/>{}</a></svg>',
            drawn,
        ),
    )


def head(flag: Any) -> SafeString:
    """Return the head of a flag, with its number."""
    return format_html(
        '<g transform="translate(0 11)"><path d="{}"/><text y="{}">{}</text></g>',
        *(HEADS[flag.look], 4 if flag.look != "alarm" else 3, flag.number),
    )


def badge(flag: Any) -> SafeString:
    """Return the same head, for the list."""
    return format_html(
        '<svg class="ems-badge ems-flag-{}" viewBox="-11 0 22 22" aria-hidden="true"'
        ' focusable="false">{}</svg>',
        *(flag.look, head(flag)),
    )


def sparkline(values: Sequence[float | None], label: Any) -> SafeString:
    """Return a small line without axes; ``label`` is read out instead of it."""
    known = [value for value in values if value is not None]
    if not known:
        return SafeString("")
    highest = max(known) or 1
    size = (SPARK_WIDTH, SPARK_HEIGHT, highest)
    return format_html(
        '<svg class="ems-spark" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img"'
        ' aria-label="{}"><path class="ems-spark-area" d="{}"/><path class="ems-spark-line"'
        ' d="{}"/></svg>',
        *(SPARK_WIDTH, SPARK_HEIGHT, label, area(values, *size), path(values, *size)),
    )


def bar(part: float, whole: float, level: str) -> SafeString:
    """Return a bar that is filled by ``part`` of ``whole``; the number stands beside it."""
    share = min(1.0, max(0.0, part / whole)) if whole else 0.0
    width = 0.0 if not share else max(1.0, share * BAR_WIDTH)
    return format_html(
        '<svg class="ems-bar ems-bar-{}" viewBox="0 0 {} 8" preserveAspectRatio="none"'
        ' aria-hidden="true" focusable="false"><rect class="ems-bar-whole" width="{}" height="8"/>'
        '<rect class="ems-bar-part" width="{}" height="8"/></svg>',
        *(level, BAR_WIDTH, BAR_WIDTH, f"{width:.1f}"),
    )


def strip(parts: Iterable[tuple[str, int, int, str]], length: int, label: Any) -> SafeString:
    """Return a row of ``length`` days; parts are (state, first, days, text), "" is drawn as a line.

    Each state has a height of its own, a gap that of the strip: nobody has to tell the colours.
    """
    heights = {"": 1, "late": 4, "kept": 8}
    drawn = format_html_join(
        "",
        '<rect class="ems-strip-{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>',
        (
            (state or "none", first, 12 - height, days, height, text)
            for state, first, days, text in parts
            for height in (heights.get(state, 12),)
        ),
    )
    return format_html(
        '<svg class="ems-strip" viewBox="0 0 {} 12" preserveAspectRatio="none" role="img"'
        ' aria-label="{}">{}</svg>',
        *(length, label, drawn),
    )
