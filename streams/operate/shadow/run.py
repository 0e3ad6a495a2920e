"""Runs the handler of a group over a part of the log, and keeps what each call has done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from django.db import IntegrityError
from django.utils.translation import gettext as _

from streams import telemetry
from streams.api import ReceivedMessage
from streams.conf import longest_name, settings
from streams.consume.calling import Calls
from streams.consume.event_loop import with_event_loop
from streams.consume.limits import limits
from streams.consume.outcome.failure import Failure
from streams.consume.reading import chosen, in_calls
from streams.consume.registry import Registration
from streams.database.retrying import retrying
from streams.database.transactions import committing, own_transaction
from streams.errors import ShadowExists, ShadowRefused, TransactionEnded
from streams.log.bodies import bounded_in_bytes, stored_messages
from streams.log.rewinds import epoch_of, readable
from streams.models import ConsumerGroup, ShadowCall, ShadowRun, UtcNow
from streams.names import MAX_NAME, valid_new_name
from streams.operate.replay import Span
from streams.operate.shadow.details import Details
from streams.operate.shadow.undone import Undone
from streams.operate.shadow.version import version_of

# A handler of single messages gets those of one read one after the other.
READ = 100


def check(name: str) -> None:
    """Raise ShadowRefused unless EMS["SHADOW_REPLAY"] is set, and InvalidName for a bad name."""
    if not settings().SHADOW_REPLAY:
        raise ShadowRefused(
            _("Shadow replays are off: set EMS['SHADOW_REPLAY'] = True where one may run.")
        )
    valid_new_name(name, "shadow replay", longest_name(MAX_NAME))


def shadow(
    group: ConsumerGroup,
    registration: Registration,
    spans: Sequence[Span],
    name: str,
    *,
    by: str,
    using: str,
    tell: Callable[[int], object] = lambda messages: None,
) -> ShadowRun:
    """Call the handler for the messages of ``spans``; undo each call, and keep what it did.

    ``tell`` is given the number of messages so far. Nothing of the group changes: there is no
    lease and no delivery, and no cursor moves. Raises ShadowRefused, ShadowExists, InvalidName and
    TransactionEnded.
    """
    check(name)
    work = partial(_Shadow(group, registration, spans, name, by, using).run, tell)
    with ExitStack() as stack:
        for alias in Undone.databases(using):
            stack.enter_context(committing(alias))
        return with_event_loop(work) if registration.asynchronous else work()


class _Stretch:
    """Names the offsets of one read; the calls of EMS move ``progress``."""

    def __init__(self, first: int, last: int) -> None:
        self.progress = first
        self.last_offset = last


class _Shadow:
    """Runs one shadow replay; it settles the calls by undoing them."""

    def __init__(
        self,
        group: ConsumerGroup,
        registration: Registration,
        spans: Sequence[Span],
        name: str,
        by: str,
        using: str,
    ) -> None:
        current = limits(group, registration, using)
        self._registration = registration
        self._spans = spans
        self._using = using
        self._timeout = current.consume_timeout
        self._batch = None if registration.batch is None else current.batch
        self._undone = Undone(using, atomic=registration.atomic)
        self._calls: list[ShadowCall] = []
        self._stretch = _Stretch(0, 0)
        self._place = ""
        self._run = ShadowRun(
            name=name,
            topic=registration.topic,
            group=registration.group,
            spans=[[span.partition.number, span.first, span.end] for span in spans],
            batch=self._batch,
            handler=registration.name[:255],
            code=version_of(registration.handler.__module__)[:255],
            started_by=by[:255],
        )

    def run(self, tell: Callable[[int], object]) -> ShadowRun:
        run = self._run
        try:
            with own_transaction(self._using):
                run.save(using=self._using, force_insert=True)
        except IntegrityError as error:
            raise ShadowExists(
                _("There is a shadow replay %(name)r: ems_groups shadows --delete %(name)s.")
                % {"name": run.name}
            ) from error
        try:
            for span, messages in self._stretches():
                # Without spans and counters: what is undone was not handled and not sent. And a
                # send would carry the context of its span, which is another one in each run.
                with telemetry.silence():
                    self._handle(span, messages)
                tell(run.messages)
        except (ShadowRefused, TransactionEnded) as error:
            run.error = _("%(place)s: %(error)s") % {"place": self._place, "error": error}
            self._save("error")
            raise type(error)(run.error) from error
        run.finished_at = UtcNow()
        self._save("finished_at")
        return run

    def _stretches(self) -> Iterator[tuple[Span, Iterable[list[ReceivedMessage]]]]:
        """Read the spans: as a consumer claims them, but always from the same offsets."""
        for span in self._spans:
            partition, first = span.partition, span.first
            while first < span.end:
                left = readable(partition.pk, partition.epoch, first, span.end, self._using)
                first, end = left.start, min(left.stop, left.start + (self._batch or READ))
                if first == end:
                    break
                place = partition.pk, first, end, self._using
                end = retrying(bounded_in_bytes, self._using, *place)
                rows = stored_messages(partition.pk, first, end, self._using)
                self._run.missing += end - first - len(rows)
                self._stretch = _Stretch(first, end - 1)
                wanted, _passed = chosen(rows, self._registration.tags)
                size = self._batch or 1
                epoch = epoch_of(partition, first, self._using)
                yield span, in_calls(wanted, size, self._registration, partition.number, 1, epoch)
                first = end

    def _handle(self, span: Span, messages: Iterable[list[ReceivedMessage]]) -> None:
        self._place = str(Span(span.partition, self._stretch.progress, self._stretch.progress + 1))
        self._span = span
        calls = Calls(
            replace(self._registration, atomic=True),  # each call is settled by itself, as below
            self._stretch,
            self,
            timeout=self._timeout,
            using=self._using,
        )
        calls.run(messages)
        self._save("messages", "failed", "missing")

    def _save(self, *fields: str) -> None:
        def work() -> None:
            with own_transaction(self._using):
                rows = ShadowCall.objects.using(self._using)
                rows.bulk_create(self._calls, ignore_conflicts=True)  # repeated after a lost reply
                self._run.save(using=self._using, update_fields=fields)

        retrying(work, self._using)
        self._calls = []

    # -- what the calls use: see Settler --

    ordered = False

    def may_begin(self) -> bool:
        return True

    def settle(self, progress: int, failures: Sequence[Failure]) -> None:
        self._stretch.progress = progress

    def release(self) -> None:
        raise NotImplementedError  # no call is held back

    def settle_atomically(
        self, call: Callable[[], list[Failure]], messages: Sequence[ReceivedMessage], after: int
    ) -> None:
        """Make the call, undo it, and note what it did."""
        first, last = messages[0].offset, messages[-1].offset
        self._place = str(Span(self._span.partition, first, last + 1))
        began = time.perf_counter()
        result = self._undone.call(call)
        details = Details.of(result)
        self._calls.append(
            ShadowCall(
                run_id=self._run.pk,
                partition=self._span.partition.number,
                first_offset=first,
                last_offset=last,
                digest=details.digest(),
                microseconds=int((time.perf_counter() - began) * 1_000_000),
                details=details.packed(),
            )
        )
        self._run.messages += len(messages)
        self._run.failed += len(messages) if result.error else len(result.failures)
        self._stretch.progress = after
