"""Lists the streams of Spark that read topics, those that need somebody first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext_lazy as _

from monitoring.live.limits import LISTED_AT_MOST
from monitoring.pages.base import FiguresPage
from streams.admin.parts import figures
from streams.retain.purge_floor import protect_time
from streams.retain.readers import ReaderNow, ReaderState, readers

LEVELS = {
    ReaderState.LOST: figures.BAD,
    ReaderState.UNPROTECTED: figures.BAD,
    ReaderState.HOLDING: figures.WARNING,
    ReaderState.NEAR: figures.WARNING,
    ReaderState.SILENT: figures.WARNING,
    ReaderState.BEHIND: figures.QUIET,
    ReaderState.AT_END: figures.GOOD,
}


@dataclass(frozen=True)
class StreamFigures:
    """What a row about a stream shows."""

    pk: int
    name: str
    checkpoint: str
    topic_pk: int
    topic: str
    state: str
    state_text: Any
    level: str
    needs_somebody: bool
    about: str  # what the state leaves open; empty if nothing
    behind: int
    lost: int
    age: timedelta | None
    rate: float | None
    used: float | None
    room: timedelta | None
    protect: bool
    protects: bool
    silent: timedelta
    seen_at: datetime


def stream_figures(found: Sequence[ReaderNow]) -> list[StreamFigures]:
    return [
        StreamFigures(
            pk=one.reader.pk,
            name=one.reader.name,
            checkpoint=one.reader.checkpoint,
            topic_pk=one.reader.topic.pk,
            topic=one.reader.topic.name,
            state=one.state.value,
            state_text=one.state.label,
            level=LEVELS[one.state],
            needs_somebody=one.needs_somebody,
            about=one.trouble,
            behind=one.behind,
            lost=one.lost,
            age=one.age,
            rate=one.rate,
            used=one.used,
            room=one.room,
            protect=one.reader.protect,
            protects=one.protects,
            silent=one.silent,
            seen_at=one.reader.seen_at,
        )
        for one in found
    ]


class StreamsPage(FiguresPage):
    name = "streams"
    route = "streams/"
    title = _("Streams")
    template_name = "ems_monitoring/streams.html"
    permissions = ("ems.view_reader",)
    tab = "streams"

    def figures(self, **arguments: Any) -> Mapping[str, Any]:
        found = stream_figures(readers(self.using))
        return {
            "streams": found[:LISTED_AT_MOST],
            "streams_in_all": len(found),
            "protect_days": protect_time(self.using).days,
        }
