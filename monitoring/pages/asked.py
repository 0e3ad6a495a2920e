"""Reads what the URL asks of every page: the time range, the zone, and how often to look again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from urllib.parse import urlencode

from django.http import QueryDict
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

HOURS = {
    "15m": 0.25,
    "1h": 1,
    "6h": 6,
    "24h": 24,
    "7d": 7 * 24,
    "30d": 30 * 24,
    "90d": 90 * 24,
}
ZONES = {"utc": _("UTC"), "browser": _("Browser's time")}
# Nothing shorter: each look costs the server some statements.
REFRESHES = {"5": _("5 s"), "15": _("15 s"), "60": _("60 s"), "off": _("off")}


@dataclass(frozen=True)
class Choice:
    """One value of a choice in the URL, as a link."""

    text: Any
    url: str
    is_chosen: bool


@dataclass(frozen=True)
class Asked:
    """The choices of the URL. A value that is none of the choices counts as the default."""

    range: str = "1h"
    zone: str = "utc"
    refresh: str = "15"

    CHOICES: ClassVar[dict[str, dict[str, Any]]] = {
        "range": {name: name for name in HOURS},
        "zone": ZONES,
        "refresh": REFRESHES,
    }

    @classmethod
    def of(cls, query: QueryDict) -> Asked:
        found = {name: query.get(name, "") for name in cls.CHOICES}
        return cls(**{name: v for name, v in found.items() if v in cls.CHOICES[name]})

    @property
    def length(self) -> timedelta:
        return timedelta(hours=HOURS[self.range])

    def query(self, **changes: str) -> str:
        """Return the query of the URL that asks the same but for ``changes``; "" if nothing."""
        default = Asked()
        asked = {name: changes.get(name, getattr(self, name)) for name in self.CHOICES}
        said = {name: value for name, value in asked.items() if value != getattr(default, name)}
        return f"?{urlencode(said)}" if said else ""

    def choices(self, name: str, kept: str = "") -> list[Choice]:
        """Return the choices of this name; ``kept`` are more parameters of the page's URL."""
        mine = getattr(self, name)
        links = []
        for value, text in self.CHOICES[name].items():
            query = self.query(**{name: value})
            whole = (f"{query}&{kept}" if query else f"?{kept}") if kept else query or "?"
            links.append(Choice(text, whole, value == mine))
        return links


def times_of(query: QueryDict) -> tuple[dict[str, datetime | None], str]:
    """Return ``since`` and ``until`` of the URL, and what is wrong with one of them.

    They are in UTC where no zone is said.
    """
    times: dict[str, datetime | None] = {}
    for name in ("since", "until"):
        text = query.get(name, "").strip()
        try:
            at = parse_datetime(text)
        except ValueError:
            at = None
        if text and at is None:
            return {"since": None, "until": None}, gettext("%r is not a time.") % text
        times[name] = at.replace(tzinfo=UTC) if at and at.tzinfo is None else at
    return times, ""


def order_of(query: QueryDict, orders: Mapping[str, Any]) -> str:
    """Return by what a list is ordered: the first of ``orders`` if the URL says none of them."""
    order = query.get("by", "")
    return order if order in orders else next(iter(orders))


def order_choices(query: QueryDict, orders: Mapping[str, Any]) -> list[Choice]:
    """Return the orders of a list as links, which keep what else the URL asks."""
    chosen, first = order_of(query, orders), next(iter(orders))
    kept = query.copy()
    kept.pop("by", None)
    kept.pop("format", None)
    links = []
    for name, text in orders.items():
        asked = kept.copy()
        if name != first:
            asked["by"] = name
        links.append(Choice(text, f"?{asked.urlencode()}", name == chosen))
    return links
