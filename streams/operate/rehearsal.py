"""Rehearses messages: calls the handler of a group for each, undoes the call, says if it passes.

Nothing of the group changes: there is no lease and no delivery, and no cursor moves.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from django.conf import settings as django_settings
from django.utils import timezone, translation
from django.utils.translation import gettext as _

from streams import telemetry
from streams.api import ReceivedMessage
from streams.conf import settings, working_on
from streams.consume.calling import HandlerCaller
from streams.consume.event_loop import with_event_loop
from streams.consume.limits import limits
from streams.consume.registry import Registration, autodiscover, find
from streams.database.retrying import retrying
from streams.database.transactions import in_test_case, new_connection
from streams.deliver.reading import chosen, in_calls
from streams.errors import NotRehearsable, TransactionEnded, describe
from streams.log.bodies import bounded_in_bytes, message_in_dead_letter, stored_messages
from streams.log.rewinds import epoch_of, readable
from streams.logs import event
from streams.models import ConsumerGroup, DeadMessage, Partition
from streams.operate.replay import Span
from streams.operate.undone import Undone, UndoneCall, databases

logger = logging.getLogger("streams.handling")

# In messages: more are not rehearsed at once.
MOST = 1000
# A handler of single messages gets those of one read one after the other.
READ = 100

PASSES, FAILS, UNCLEAR = "passes", "fails", "unclear"


@dataclass(frozen=True)
class Rehearsed:
    """What came of the call for one message; the messages of a batch have one call."""

    place: str
    dead_letter: int | None
    state: str
    seconds: float
    error: str


@dataclass
class Rehearsal:
    """What came of all calls; ``left_out`` are gone, or without a tag that the group wants.

    ``stopped`` says why it ended before the last message, if it did.
    """

    handler: str
    messages: list[Rehearsed] = field(default_factory=list)
    left_out: int = 0
    stopped: str = ""

    def count(self, state: str) -> int:
        return sum(one.state == state for one in self.messages)

    @property
    def all_pass(self) -> bool:
        return not self.stopped and self.count(PASSES) == len(self.messages)


def rehearsable(group: ConsumerGroup) -> Registration:
    """Return the consumer of the group; raises NotRehearsable."""
    autodiscover()
    registration = find(group.topic.name, group.name)
    if registration is None:
        raise NotRehearsable(
            _("This process has no consumer for %s: rehearse where its code is installed.") % group
        )
    if not registration.rehearsable:
        raise NotRehearsable(
            _(
                "%s is not rehearsable: what it does outside the databases, such as mail or HTTP,"
                " would happen. If it does nothing of the kind, declare it:"
                " @consumer(…, rehearsable=True)."
            )
            % registration.name
        )
    return registration


def rehearse(
    group: ConsumerGroup,
    using: str,
    *,
    spans: Sequence[Span] = (),
    letters: Sequence[int] = (),
    by: str,
    limit: int = MOST,
    seconds: float = math.inf,
    tell: Callable[[int], object] = lambda messages: None,
) -> Rehearsal:
    """Call the handler for the messages of ``spans``, then for the dead ``letters`` of these ids.

    At most ``limit`` messages, and no call begins after ``seconds``. ``tell`` is given the number
    of messages so far. Raises NotRehearsable.
    """
    registration = rehearsable(group)
    logger.info(
        "%s rehearses messages of %s",
        *(by, group),
        extra=event("handler.rehearsed", topic=group.topic.name, group=group.name),
    )
    with ExitStack() as stack:
        for alias in databases():
            # Not that of a request, which may have a transaction open. A handler may also leave
            # anything behind on its connection.
            if not in_test_case(alias):
                stack.enter_context(new_connection(alias))
        work = _Rehearsing(group, registration, using, limit, seconds, tell)
        calls = work.of_spans(spans), work.of_letters(letters)

        def run() -> Rehearsal:
            return work.run(call for some in calls for call in some)

        return with_event_loop(run) if registration.asynchronous else run()


@contextmanager
def _as_in_a_consumer() -> Iterator[None]:
    """Keep from the handler what belongs to the request or the command, and from observers both.

    What is undone was not handled and not sent: it has no span, and is not counted.
    """
    language = translation.override(django_settings.LANGUAGE_CODE)
    with telemetry.silence(), working_on(settings().DATABASE), language, timezone.override(None):
        yield


class _Rehearsing:
    """The calls of one rehearsal: a Settler that undoes them, and the Stretch of them all."""

    def __init__(
        self,
        group: ConsumerGroup,
        registration: Registration,
        using: str,
        limit: int,
        seconds: float,
        tell: Callable[[int], object],
    ) -> None:
        current = limits(group, registration, using)
        self._group = group
        self._registration = registration
        self._using = using
        self._timeout = current.consume_timeout
        self._size = 1 if registration.batch is None else current.batch
        self._read = READ if registration.batch is None else current.batch
        self._undone = Undone(using, atomic=registration.atomic)
        self._left = limit
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._tell = tell
        self._letter: int | None = None
        self._found = Rehearsal(registration.name)

    def run(self, calls: Iterator[list[ReceivedMessage]]) -> Rehearsal:
        # In a transaction, as that of an atomic handler: a statement that fails breaks it. And
        # nothing waits for a message that fails.
        each = replace(self._registration, atomic=True, ordered=False)
        with _as_in_a_consumer():
            caller = HandlerCaller(each, None, timeout=self._timeout, using=self._using)
            for messages in calls:
                if not self._may_begin():
                    break
                self._note(messages, self._undone.call(partial(caller.called, messages)))
        return self._found

    def of_spans(self, spans: Sequence[Span]) -> Iterator[list[ReceivedMessage]]:
        """Yield the messages of one call after the other, as a consumer would claim them."""
        using = self._using
        for span in spans:
            partition, first = span.partition, span.first
            while first < span.end:
                left = readable(partition.pk, partition.epoch, first, span.end, using)
                first, end = left.start, min(left.stop, left.start + self._read)
                if first == end or not (end := min(end, first + self._allowed())) > first:
                    break
                end = retrying(bounded_in_bytes, using, partition.pk, first, end, using)
                rows = stored_messages(partition.pk, first, end, using)
                wanted, _passed = chosen(rows, self._registration.tags)
                self._left -= end - first
                self._found.left_out += end - first - len(wanted)
                epoch = epoch_of(partition, first, using)
                place = partition.number, 1, epoch
                yield from in_calls(wanted, self._size, self._registration, *place)
                first = end

    def of_letters(self, letters: Sequence[int]) -> Iterator[list[ReceivedMessage]]:
        """Yield the copies that the dead letters keep, one by one, as a redrive hands them over."""
        using = self._using
        found = DeadMessage.objects.using(using).filter(pk__in=letters, group=self._group.pk)
        places = {pk: place for pk, *place in found.values_list("pk", "partition", "offset")}
        partitions = Partition.objects.using(using).in_bulk([pk for pk, _at in places.values()])
        for self._letter in letters:
            if not self._allowed():
                return
            self._left -= 1
            partition_id, offset = places.get(self._letter, (0, 0))
            partition = partitions.get(partition_id)
            rows = message_in_dead_letter(self._letter, using) if partition else []
            wanted, _passed = chosen(rows, self._registration.tags)
            self._found.left_out += not wanted
            if partition is not None:
                place = partition.number, 1, epoch_of(partition, offset, using)
                yield from in_calls(wanted, 1, self._registration, *place)

    def _allowed(self) -> int:
        if self._left <= 0:
            self._found.stopped = _("No more are rehearsed at once.")
        return self._left

    def _may_begin(self) -> bool:
        if time.monotonic() > self._until:
            self._found.stopped = _("It took more than %g seconds.") % self._seconds
        return not self._found.stopped

    def _note(self, messages: Sequence[ReceivedMessage], done: UndoneCall) -> None:
        """Note what came of a call that is undone."""
        if done.ended:
            self._found.stopped = _(
                "The handler ended the transaction: what it wrote before that may be committed."
            )
        late = None
        if done.seconds > self._timeout.total_seconds():
            late = TimeoutError(_("the call took longer than its consume timeout"))
        failed = {failure.offset: failure.error for failure in done.failures}
        for message in messages:
            error = done.unclear or done.error or failed.get(message.offset)
            error = error or (TransactionEnded() if done.ended else late)
            state = UNCLEAR if done.unclear else FAILS if error else PASSES
            self._found.messages.append(
                Rehearsed(
                    f"{message.topic}/{message.partition}@{message.offset}",
                    self._letter,
                    state,
                    done.seconds,
                    describe(error) if error else "",
                )
            )
        self._tell(len(self._found.messages))
