"""Signs a plan for many rows that a preview has shown, so that exactly this is done.

It is done in steps of a few seconds, one in each request. Between the steps the browser holds the
plan, with what has been done so far. A step that is sent twice finds nothing left to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest

from streams.admin.verbs.offer import accepted, offer

BATCH = 200
# Seconds of one step: well below the time limits of web servers.
STEP_SECONDS = 5.0


@dataclass(frozen=True)
class Plan:
    """The rows of a list up to an id: all that match the filters of ``path``, or ``ids``."""

    path: str
    back: str  # the list as it was, when all is done
    upto: int
    total: int
    at: str  # when they were counted, in ISO 8601
    ids: tuple[int, ...] | None = None
    after: int = 0  # the last row that was looked at
    done: int = 0
    skipped: int = 0

    @classmethod
    def accepted(cls, request: HttpRequest, verb: str) -> Plan | None:
        """Return the plan that was offered; None if its user, verb or list is another one."""
        values = accepted(request, verb, request.get_full_path())
        return None if values is None else cls(**values)

    def offer(self, request: HttpRequest, verb: str) -> str:
        return offer(request, verb, self.path, asdict(self))

    @property
    def has_begun(self) -> bool:
        return bool(self.after)

    @property
    def looked_at(self) -> int:
        return self.done + self.skipped

    def rows(self, matching: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows of the plan that are left."""
        left = matching.filter(pk__gt=self.after, pk__lte=self.upto)
        return left if self.ids is None else left.filter(pk__in=self.ids)

    def step(
        self, matching: QuerySet[Any], verb: Callable[[Any], bool]
    ) -> Iterator[tuple[Any, bool, Plan]]:
        """Apply the verb to row after row, for STEP_SECONDS; yield row, outcome and new plan."""
        plan = self
        ends = time.monotonic() + STEP_SECONDS
        while batch := list(plan.rows(matching).order_by("pk")[:BATCH]):
            for row in batch:
                done = verb(row)
                plan = replace(
                    plan,
                    after=row.pk,
                    done=plan.done + done,
                    skipped=plan.skipped + (not done),
                )
                yield row, done, plan
                if time.monotonic() > ends:
                    return
