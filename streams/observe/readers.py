"""Diagnoses streams of Spark: what was purged unread, and what a purge waits for."""

from __future__ import annotations

from collections.abc import Iterator

from streams.observe.diagnoses import ERROR, OK, WARNING, Diagnosis
from streams.retain.readers import ReaderState
from streams.retain.readers import readers as standing

HINTS = {
    ReaderState.LOST: "Start it with a new checkpoint, or with failOnDataLoss=false.",
    ReaderState.UNPROTECTED: "Run it soon, or ems_readers forget: its messages are purged.",
    ReaderState.HOLDING: "Run it, or ems_readers forget: the disk fills.",
    ReaderState.NEAR: "Give it more cores, or keep the messages longer; or read with protect=true.",
    ReaderState.SILENT: "Run it, or ems_readers forget.",
}


def readers(using: str) -> Iterator[Diagnosis]:
    """Yield a diagnosis for each stream that needs somebody, or one if there are others."""
    found = standing(using)
    for one in found:
        if one.needs_somebody:
            hint = HINTS[one.state]
            if one.state == ReaderState.LOST:
                yield Diagnosis(ERROR, "stream", f"{one.reader}: {one}", hint)
            else:
                yield Diagnosis(WARNING, "stream", f"{one.reader}: {one}", hint)
    if found and not any(one.needs_somebody for one in found):
        yield Diagnosis(OK, "stream", f"{len(found)} of Spark are known, none is too late.")
