"""Draws bars and lines as SVG: plain text, light and dark, readable on a telephone.

The picture is 380 units wide, with letters of 12 and more: so wide a telephone shows it as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, LEFT = 380, 8
TITLE, LEGEND, LABEL, BAR = 26, 20, 18, 14  # heights
ROOM = 92  # right of the longest bar, for its value
PLOT, AXIS = 190, 48  # height of the plot of lines, and what is left of it
STYLE = """<style>
svg { font-family: system-ui, -apple-system, "Segoe UI", sans-serif; font-size: 12.5px; }
.page { fill: #ffffff; } text { fill: #1f2328; } .quiet { fill: #59636e; font-size: 12px; }
.title { font-size: 14px; font-weight: 600; } .grid { stroke: #d1d9e0; stroke-width: 1; }
.a { fill: #0b62c4; } .b { fill: #9aa4b0; } .c { fill: #b35900; } .d { fill: #1a7f4b; }
.line { fill: none; stroke-width: 2.5; } .line.a { stroke: #0b62c4; } .line.b { stroke: #9aa4b0; }
.line.c { stroke: #b35900; } .line.d { stroke: #1a7f4b; }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117; } text { fill: #e6edf3; } .quiet { fill: #9ea7b3; }
.grid { stroke: #343b44; }
.a { fill: #58a6ff; } .b { fill: #6e7781; } .c { fill: #f0883e; } .d { fill: #3fb950; }
.line { fill: none; } .line.a { stroke: #58a6ff; } .line.b { stroke: #6e7781; }
.line.c { stroke: #f0883e; } .line.d { stroke: #3fb950; }
}
</style>"""
CLASSES = "abcd"


@dataclass(frozen=True)
class Bars:
    """Draws one bar for each series under each label; a value that is unknown is a dash."""

    title: str
    unit: str
    series: Sequence[str]  # one to four; with one there is no legend
    rows: Sequence[tuple[str, Sequence[float | None]]]
    ours: str = ""  # with one series: the label that is drawn in our colour, the others in grey

    def svg(self) -> str:
        most = max((v for _, values in self.rows for v in values if v is not None), default=0) or 1
        if not self.rows:
            return _empty(self.title)
        room = WIDTH - 2 * LEFT - ROOM
        parts, y = _head(self.title, self.unit, self.series if len(self.series) > 1 else ())
        for label, values in self.rows:
            parts.append(_text(LEFT, y + 13, label))
            y += LABEL
            for number, value in enumerate(values):
                kind = CLASSES[number]
                if self.ours:
                    kind = "a" if label == self.ours else "b"
                wide = max(1.0, room * value / most) if value else 0.0
                if wide:
                    parts.append(_rect(LEFT, y, wide, BAR - 2, kind))
                parts.append(_text(LEFT + wide + 5, y + 10, short(value), "quiet"))
                y += BAR
            y += 7
        return _svg(self.title, self.alt, parts, y + 4)

    @property
    def alt(self) -> str:
        told = (
            f"{label}: {', '.join(short(value) for value in values)}" for label, values in self.rows
        )
        return f"{self.unit}. {', '.join(self.series)}. {'; '.join(told)}"


@dataclass(frozen=True)
class Lines:
    """Draws one line for each series, over the same steps; ``log`` for a scale of powers of ten."""

    title: str
    unit: str
    steps: Sequence[str]
    series: Sequence[tuple[str, Sequence[float | None]]]
    log: bool = False

    def svg(self) -> str:
        if not self.steps:
            return _empty(self.title)
        parts, y = _head(self.title, self.unit, [name for name, _ in self.series])
        bottom, left = y + PLOT, LEFT + AXIS
        marks = self._marks()
        high, low = self._scaled(marks[-1]), self._scaled(marks[0])

        def place(value: float) -> float:
            return bottom - (self._scaled(value) - low) / ((high - low) or 1) * (PLOT - 12)

        for mark in marks:
            at = place(mark)
            parts.append(
                f'<path class="grid" d="M{left} {at:.1f}H{WIDTH - LEFT}"/>'
                + _text(left - 5, at + 4, short(mark), "quiet", "end")
            )
        gap = (WIDTH - LEFT - left - 30) / max(1, len(self.steps) - 1)
        for number, step in enumerate(self.steps):
            parts.append(_text(left + 15 + number * gap, bottom + 18, step, "quiet", "middle"))
        for kind, (_name, values) in zip(CLASSES, self.series, strict=False):
            points = [
                (left + 15 + number * gap, place(value))
                for number, value in enumerate(values)
                if value is not None
            ]
            way = "L".join(f"{x:.1f} {at:.1f}" for x, at in points)
            parts.append(f'<path class="line {kind}" d="M{way}"/>')
            parts += [
                f'<circle class="{kind}" cx="{x:.1f}" cy="{at:.1f}" r="3.5"/>' for x, at in points
            ]
        return _svg(self.title, self.alt, parts, bottom + 28)

    @property
    def alt(self) -> str:
        told = (f"{name}: {', '.join(short(value) for value in of)}" for name, of in self.series)
        return f"{self.unit}, at {', '.join(self.steps)}. {'; '.join(told)}"

    def _scaled(self, value: float) -> float:
        return math.log10(max(value, 1e-9)) if self.log else value

    def _marks(self) -> list[float]:
        known = [v for _, values in self.series for v in values if v is not None] or [1.0]
        if self.log:
            low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
            return [10.0**power for power in range(low, max(high, low + 1) + 1)]
        step = 10 ** math.floor(math.log10(max(known)))
        step = next(s for s in (step / 5, step / 2, step, step * 2) if max(known) / s <= 5)
        return [step * number for number in range(math.ceil(max(known) / step) + 1)]


def short(value: float | None) -> str:
    """Return a value in at most three or four digits."""
    if value is None:
        return "–"
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2g}"


def _empty(title: str) -> str:
    parts, y = _head(title, "not measured yet", ())
    return _svg(title, "Not measured yet.", parts, y + 4)


def _head(title: str, unit: str, legend: Sequence[str]) -> tuple[list[str], float]:
    parts = [_text(LEFT, 19, title, "title"), _text(LEFT, TITLE + 12, unit, "quiet")]
    x, y = float(LEFT), float(TITLE + LEGEND)
    for kind, name in zip(CLASSES, legend, strict=False):
        wide = 22 + 7 * len(name)
        if x + wide > WIDTH:
            x, y = float(LEFT), y + LEGEND
        parts.append(_rect(x, y + 2, 11, 11, kind) + _text(x + 16, y + 12, name, "quiet"))
        x += wide + 8
    return parts, y + (LEGEND + 6 if legend else 6)


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "") -> str:
    attributes = f' class="{kind}"' if kind else ""
    attributes += f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.4g}" y="{y:.4g}"{attributes}>{escape(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    return (
        f'<rect class="{kind}" x="{x:.4g}" y="{y:.4g}" width="{width:.1f}" height="{height:.4g}"'
        ' rx="2"/>'
    )


def _svg(title: str, alt: str, parts: Sequence[str], height: float) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}"'
        f' width="{WIDTH * 3 // 2}" role="img">'
    )
    words = f"<title>{escape(title)}</title>\n<desc>{escape(alt)}</desc>"
    page = f'<rect class="page" width="{WIDTH}" height="{height:.0f}"/>'
    return "\n".join([head, words, STYLE, page, *parts, "</svg>\n"])
