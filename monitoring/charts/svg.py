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

Point = tuple[float, float]


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
            points = [(x - step / 4, y), (x + step / 4, y)]
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
