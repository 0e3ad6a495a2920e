"""Runs a stress test, one at a time, in a process of its own."""

from __future__ import annotations

from typing import Any

from ninja import Router, Status
from pydantic import Field

from streams.conf import database, settings
from streams.http.access import ApiRequest, needs
from streams.http.fields import Answer, Id, Instant, Request
from streams.http.journal import note, who
from streams.http.problems import Problem
from streams.http.stressing import begin, start
from streams.http.threads import on_pool
from streams.models import StressRun, UtcNow
from streams.models.stress_run import LONGEST
from streams.stress import Load

router = Router(tags=["Stress"])

# The most of one run.
MESSAGES, SIZE, WRITERS, SECONDS = 100_000, 1024 * 1024, 8, 60.0


class NewRun(Request):
    """What is sent; without ``group`` nobody consumes, without ``rate`` as fast as it goes."""

    topic: str = Field(pattern=r"^stress\.")
    messages: int = Field(2000, ge=1, le=MESSAGES)
    size: int = Field(1024, ge=20, le=SIZE)
    writers: int = Field(4, ge=1, le=WRITERS)
    rate: float | None = Field(None, gt=0)
    group: str | None = "stress"


class Begun(Answer):
    run: int


class StressRunShown(Answer):
    """A run. What is not known yet is null.

    ``committed`` and ``sequenced`` are counted in the offsets, ``distinct_ids`` in the rows,
    ``consumed`` in what the group has finished. ``missing`` and ``repeated`` are what the handler
    was not called with, or more than once.
    """

    run: int
    topic: str
    state: str
    error: str
    started_at: Instant
    finished_at: Instant | None
    asked: int
    committed: int | None = None
    distinct_ids: int | None = None
    sequenced: int | None = None
    consumed: int | None = None
    missing: int | None = None
    repeated: int | None = None
    errors: dict[str, int] | None = None
    send_seconds: float | None = None
    rate: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    row_lock_waits: int | None = None


@router.post("/stress", response={202: Begun})
@needs("stress")
@on_pool
def begin_stress(request: ApiRequest, wanted: NewRun) -> Status[Begun]:
    """Begin a run; its topic is created, and deleted at the end. Off unless `EMS["STRESS"]`.

    At most 100,000 messages of 1 MB from 8 writers in 60 s. 409: a run is under way, or there is
    such a topic.
    """
    if not settings().STRESS:
        raise Problem(403, "stress_off", "Stress tests are off: EMS['STRESS'] turns them on.")
    request.auth.needs("stress", wanted.topic)
    load = Load(
        topic=wanted.topic,
        messages=wanted.messages,
        seconds=SECONDS,
        size=wanted.size,
        writers=wanted.writers,
        rate=wanted.rate,
        groups=0 if wanted.group is None else 1,
        group=wanted.group or "",
    )
    run = begin(load, who(request.auth), database())
    start(run.pk, database())
    note(request.auth, run, f"begun on {wanted.topic}: {wanted.messages} messages")
    return Status(202, Begun(run=run.pk))


@router.get("/stress/{int:run}", response=StressRunShown)
@needs("stress")
@on_pool
def show_stress(request: ApiRequest, run: Id) -> StressRunShown:
    """Show a run: `state` is `running`, `deleting` (measured), `done`, `failed` or `lost`."""
    rows = StressRun.objects.using(database()).filter(pk=run)
    row = rows.first()
    if row is None or not request.auth.may("stress", row.load["topic"]):
        raise Problem(404, "unknown", f"There is no run {run}.")
    is_old = rows.filter(started_at__lt=UtcNow(-LONGEST)).exists()
    return StressRunShown(
        run=row.pk,
        topic=row.load["topic"],
        state=_state(row, is_old=is_old),
        error=row.error,
        started_at=row.started_at,
        finished_at=row.finished_at,
        asked=row.load["messages"],
        **(_figures(row.result) if row.result else {}),
    )


def _state(row: StressRun, *, is_old: bool) -> str:
    if row.error:
        return "failed"
    if row.finished_at is not None:
        return "done"
    if is_old:
        return "lost"
    return "deleting" if row.result else "running"


def _figures(result: dict[str, Any]) -> dict[str, Any]:
    seconds = result["sending_seconds"]
    return {
        **{name: result[name] for name in ("committed", "distinct_ids", "sequenced", "errors")},
        "consumed": sum(result["finished"].values()) if result["finished"] else None,
        "missing": sum(result["missing"].values()) if result["missing"] else None,
        "repeated": sum(result["repeated"].values()) if result["repeated"] else None,
        "send_seconds": seconds,
        "rate": result["accepted"] / seconds if seconds else None,
        **{f"{name}_ms": result["send_ms"].get(name) for name in ("p50", "p95", "p99")},
        "row_lock_waits": result["row_lock_waits"],
    }
