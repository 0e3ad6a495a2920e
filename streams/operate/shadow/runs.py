"""Finds, deletes and compares the shadow replays that are kept."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

from django.db.models import Q
from django.utils.translation import gettext as _

from streams.database.batches import delete_all
from streams.database.retrying import retrying
from streams.errors import ShadowMismatch, UnknownShadow
from streams.models import ShadowCall, ShadowRun
from streams.operate.shadow.details import KINDS, Details

PAGE = 200
# In characters.
LINE = 400


@dataclass(frozen=True)
class Difference:
    """Holds where two runs differ: the messages of one call, and what they did there.

    ``what`` is one of KINDS, or "called" if only one of the two has called the handler with it.
    """

    partition: int
    first: int
    last: int
    what: str
    before: list[str]
    after: list[str]

    def changes(self, at_most: int) -> tuple[list[tuple[str, str]], int]:
        """Return the first lines that differ, marked "-" or "+", and how many there are.

        Each is an excerpt of at most LINE characters, of where it differs.
        """
        found: list[tuple[str, str]] = []
        matcher = SequenceMatcher(None, self.before, self.after)
        for kind, i, j, k, m in matcher.get_opcodes():
            if kind == "equal":
                continue
            for old, new in zip_longest(self.before[i:j], self.after[k:m], fillvalue=""):
                pairs = zip(old, new, strict=False)
                place = next((n for n, (x, y) in enumerate(pairs) if x != y), 0)
                found += [("-", _excerpt(old, place))] if old else []
                found += [("+", _excerpt(new, place))] if new else []
        return found[:at_most], len(found)


def _excerpt(text: str, place: int) -> str:
    if len(text) <= LINE:
        return text
    start = max(0, place - LINE // 4)
    return f"{'…' if start else ''}{text[start : start + LINE - 2]}…"


def find(name: str, using: str) -> ShadowRun:
    """Return the shadow replay of this name; raises UnknownShadow."""
    run: ShadowRun | None = retrying(ShadowRun.objects.using(using).filter(name=name).first, using)
    if run is None:
        raise UnknownShadow(_("There is no shadow replay %r.") % name)
    return run


def delete(run: ShadowRun, using: str) -> Iterator[int]:
    """Delete the run with its calls in batches; yield how many rows each has deleted."""
    yield from delete_all(ShadowCall.objects.using(using).filter(run=run.pk), using)
    yield from delete_all(ShadowRun._base_manager.using(using).filter(pk=run.pk), using)


def differences(
    before: ShadowRun,
    after: ShadowRun,
    using: str,
    ignored: Set[str] = frozenset(),
) -> Iterator[Difference]:
    """Yield where the two runs differ, in the order of the log.

    ``ignored`` has names such as ``shop_order.updated_at``, as a difference shows them. Raises
    ShadowMismatch if the runs are not of the same calls.
    """
    _check(before, after)
    left, right = _calls(before, using), _calls(after, using)
    one, two = next(left, None), next(right, None)
    while one or two:
        if one and (two is None or _place(one) < _place(two)):
            yield _called(one, [_("called")], [])
            one = next(left, None)
        elif two and (one is None or _place(two) < _place(one)):
            yield _called(two, [], [_("called")])
            two = next(right, None)
        elif one and two:
            if bytes(one.digest) != bytes(two.digest):
                yield from _compared(one, two, ignored)
            one, two = next(left, None), next(right, None)


def _check(before: ShadowRun, after: ShadowRun) -> None:
    for run in (before, after):
        if run.state != "finished":
            raise ShadowMismatch(
                _("%(name)s has not ended as it should: %(state)s.")
                % {"name": run.name, "state": run.error or run.state}
            )
    for field in ("topic", "group", "spans", "batch"):
        values = [getattr(run, field) for run in (before, after)]
        if values[0] != values[1]:
            raise ShadowMismatch(
                _("%(field)s differs: %(before)s in one, %(after)s in the other.")
                % {"field": field, "before": values[0], "after": values[1]}
            )


def _calls(run: ShadowRun, using: str) -> Iterator[ShadowCall]:
    rows = ShadowCall.objects.using(using).filter(run=run.pk).order_by("partition", "first_offset")
    after = Q()
    while page := retrying(list, using, rows.filter(after).defer("details")[:PAGE]):
        yield from page
        partition, offset = page[-1].partition, page[-1].first_offset
        after = Q(partition=partition, first_offset__gt=offset) | Q(partition__gt=partition)


def _place(call: ShadowCall) -> tuple[int, int]:
    return call.partition, call.first_offset


def _called(call: ShadowCall, before: list[str], after: list[str]) -> Difference:
    place = call.partition, call.first_offset, call.last_offset
    return Difference(*place, "called", before, after)


def _compared(one: ShadowCall, two: ShadowCall, ignored: Set[str]) -> Iterator[Difference]:
    details: list[Any] = [Details.unpacked(bytes(call.details)) for call in (one, two)]
    for kind in KINDS:
        before, after = (each.lines(kind, ignored) for each in details)
        if before != after:
            place = one.partition, one.first_offset, one.last_offset
            yield Difference(*place, kind, before, after)
