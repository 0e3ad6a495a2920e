"""Finds messages by one box: an id, a place in the log, a key or a tag, and a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar

from django.db.models import Prefetch, Q
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from monitoring.pages.asked import times_of
from monitoring.pages.base import FiguresPage
from streams.admin.parts.columns import span, url
from streams.admin.parts.search import Search
from streams.errors import InvalidTarget
from streams.log.foreign import own_rows
from streams.log.search import (
    STEPS,
    Criteria,
    not_indexed,
    parse_position,
    position_text,
    search,
)
from streams.models import Message, Partition
from streams.models.namespaces import own

TAG = "tag:"
# In messages.
SHOWN = 50


@dataclass(frozen=True)
class Hit:
    """One message that was found."""

    id: int
    place: str
    key: str | None
    tag: str
    size: int
    created_at: datetime
    sequenced_at: datetime | None
    url: str

    @classmethod
    def of(cls, row: Message) -> Hit:
        place = str(row.partition) if row.offset is None else span(row)
        about = row.key, row.tag, row.size, row.created_at, row.sequenced_at
        return cls(row.pk, place, *about, url(row))


class SearchPage(FiguresPage):
    name = "search"
    route = "search/"
    title = _("Search")
    template_name = "ems_monitoring/search.html"
    tab: ClassVar[str] = "search"
    permissions = ("ems.view_message",)

    def figures(self, **arguments: Any) -> Mapping[str, Any]:
        query = self.request.GET
        text = query.get("q", "").strip()
        times, error = times_of(self.request.GET)
        found: dict[str, Any] = self._exactly([], "")
        if not error and (text or any(times.values())):
            try:
                found = self._found(text, times, query.get("then", ""))
            except InvalidTarget as refused:
                error = str(refused)
        typed = {name: query.get(name, "") for name in ("q", "since", "until")}
        return {**found, "typed": typed, "error": error}

    def _found(self, text: str, times: dict[str, datetime | None], then: str) -> dict[str, Any]:
        """Look an id or a place up by itself; search the rest, a bounded number of messages."""
        look = Search.parse(text)
        if look.place is not None:
            rows = self._rows(look.place.messages).order_by("offset")[:SHOWN]
            return self._exactly(rows, gettext("a place in the log"))
        tag = text[len(TAG) :].strip() if text.startswith(TAG) else None
        if look.pk is not None and not then and not any(times.values()):
            rows = self._rows(Q(pk=look.pk))[:1]
            if found := list(rows):
                return self._exactly(found, gettext("an id"))
        criteria = Criteria(
            times["since"], times["until"], tag, (text or None) if tag is None else None
        )
        start = parse_position(then) if then else None
        partitions = Partition.objects.using(self.using).filter(own("topic__name"))
        every = {row.pk: row for row in partitions.select_related("topic")}
        result = search(every.values(), criteria, SHOWN, self.using, start)
        for row in result.messages:
            row.partition = every[row.partition_id]
        kind = gettext("a tag") if tag is not None else gettext("a whole key") if text else ""
        hits = [Hit.of(row) for row in result.messages]
        by_key = criteria.key is not None
        return {
            "hits": hits,
            "then": position_text(result.then),
            "searched": kind,
            "left": result.left,
            "lacking": not_indexed(every.values()) if by_key and result.then else [],
        }

    def _exactly(self, rows: Any, kind: str) -> dict[str, Any]:
        hits = [Hit.of(row) for row in rows]
        return {"hits": hits, "then": "", "searched": kind, "left": None, "lacking": []}

    def _rows(self, condition: Q) -> Any:
        rows = Message.objects.using(self.using).filter(condition).defer("body", "headers")
        partitions = Partition.objects.using(self.using).select_related("topic")
        return own_rows(rows, self.using).prefetch_related(Prefetch("partition", partitions))

    def render(self, request: Any, figures: Mapping[str, Any]) -> Any:
        asked = request.GET.copy()
        asked["then"] = figures["then"]
        older = f"?{asked.urlencode()}" if figures["then"] else ""
        # A refresh would search again, and overwrite what somebody is typing.
        still = {"asked": replace(self.asked, refresh="off")}
        further = {"older": older, "steps": STEPS, "most": SHOWN}
        return super().render(request, {**figures, **still, **further})
