"""Reads OPTIONS of a backend in TASKS: what is wrong there is an error at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured

from streams.conf import longest_name
from streams.consume.rate import Rate
from streams.contrib.tasks.cron import Cron, Every
from streams.contrib.tasks.task_options import LADDER, is_backoff
from streams.durations import parse_duration
from streams.errors import StreamsError
from streams.rules.names import MAX_NAME, validated_name


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """OPTIONS of one backend. ``timeout``, ``threads``, ``rate``: maybe a value for each queue."""

    max_attempts: int = 1
    backoff: Any = LADDER
    timeout: float | Mapping[str, float] | None = None
    threads: int | Mapping[str, int] | None = None
    rate: str | Mapping[str, str] | None = None
    atomic: bool = False
    keep_successful: timedelta | None = timedelta(days=7)
    keep_failed: timedelta | None = timedelta(days=30)
    schedules: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    queues: frozenset[str] = field(default=frozenset())

    @classmethod
    def of(cls, alias: str, queues: Iterable[str], given: Mapping[str, Any]) -> TaskSettings:
        """Check OPTIONS; raises ImproperlyConfigured."""
        known = {one.name for one in fields(cls)} - {"queues"}
        values = dict(given)
        if unknown := sorted(values.keys() - known):
            raise ImproperlyConfigured(
                f"TASKS[{alias!r}]['OPTIONS'] has {unknown[0]!r}, which is none of"
                f" {', '.join(sorted(known))}."
            )
        try:
            for name in ("keep_successful", "keep_failed"):
                if name in values:
                    values[name] = _duration(values[name])
            most = values.get("max_attempts", 1)
            if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= 10_000:
                raise ValueError("max_attempts must be a whole number from 1 to 10000")
            if not is_backoff(values.get("backoff", LADDER)):
                raise ValueError("backoff must be seconds, a timedelta, None, 'ladder' or a path")
            if not isinstance(values.get("atomic", False), bool):
                raise ValueError("atomic must be True or False")
            rate = values.get("rate")
            for text in rate.values() if isinstance(rate, Mapping) else (rate,) if rate else ():
                Rate.of(text)
            given_schedules = values.get("schedules", {})
            values["schedules"] = {
                validated_name(name, "schedule", longest_name(MAX_NAME)): _schedule(name, one)
                for name, one in given_schedules.items()
            }
        except (ValueError, StreamsError) as error:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]['OPTIONS']: {error}.") from error
        return cls(**values, queues=frozenset(queues))

    def for_queue(self, name: str, queue: str) -> Any:
        """Return a value of a queue; None leaves it to the run-time settings."""
        value = getattr(self, name)
        return value.get(queue) if isinstance(value, Mapping) else value


def _schedule(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Check a schedule: task, cron or every, and maybe args, kwargs and timezone."""
    known = {"task", "cron", "every", "timezone", "args", "kwargs"}
    if unknown := sorted(given.keys() - known):
        raise ValueError(f"the schedule {name} has {unknown[0]!r}, which is unknown")
    if "task" not in given or ("cron" in given) == ("every" in given):
        raise ValueError(f"the schedule {name} needs task, and either cron or every")
    found = {"path": given["task"], "args": list(given.get("args", ()))}
    found["kwargs"] = dict(given.get("kwargs", {}))
    if "every" in given:
        period = _duration(given["every"])
        if not period or period < timedelta(seconds=1):
            raise ValueError(f"the schedule {name} has every= below a second")
        return {**found, "when": Every(period)}
    try:
        zone = ZoneInfo(given.get("timezone") or django_settings.TIME_ZONE)
    except (ValueError, KeyError) as error:
        raise ValueError(f"the schedule {name} has an unknown time zone") from error
    return {**found, "when": Cron.parse(given["cron"], zone)}


def _duration(value: Any) -> timedelta | None:
    if value is None or isinstance(value, timedelta):
        return value
    return parse_duration(str(value))
