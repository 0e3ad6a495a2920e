"""Opens a claimed delivery: is an attempt left, and which messages are handed over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streams.api import ReceivedMessage
from streams.consume.limits import Limits
from streams.consume.outcome import backoff
from streams.consume.outcome.expire import ended_uncalled
from streams.consume.outcome.failure import AttemptsExhausted, Failure
from streams.consume.outcome.settle import keep_below
from streams.consume.registry import Registration
from streams.deliver.closing import Closed, close
from streams.deliver.reading import Reading
from streams.models import Delivery, RetryMessage


@dataclass(frozen=True)
class Opened:
    """What is handed over of a delivery, and what was ``closed`` because nobody can handle it."""

    messages: Sequence[ReceivedMessage] = ()
    closed: Closed | None = None


def exhausted(delivery: Delivery, retry: RetryMessage | None, limits: Limits) -> Failure | None:
    """Return the failure that ends a delivery without an attempt left; None if there is one.

    Its max_retries was lowered while the message waited, so the attempt is the one before. That is
    made again if its process died without a call, and whoever noticed did not know the limit.
    """
    if not backoff.exhausted(delivery.attempt - 1, limits.max_retries):
        return None
    delivery.attempt -= 1
    if ended_uncalled(delivery, delivery.first_offset, delivery.using):
        return None
    spent = AttemptsExhausted(retry.last_error if retry else "")
    return Failure(delivery.first_offset, spent)


def open_whole(
    delivery: Delivery,
    retry: RetryMessage | None,
    limits: Limits,
    registration: Registration,
    unreadable: Callable[[ReceivedMessage], Exception | None] = lambda message: None,
) -> Opened:
    """Open the delivery for somebody who handles all of it, and settle what nobody can handle.

    Absent messages before the first one are settled, and those that are ``unreadable`` have failed
    with that error. The messages that are returned come one after the other; what comes after such
    a one, or after CLAIM_BYTES, is not among them: see ``hold``. Raises LeaseLost.
    """
    if delivery.started_at is None and (failure := exhausted(delivery, retry, limits)):
        return Opened((), close(delivery, delivery.last_offset + 1, [failure], limits))
    reading = Reading(delivery, registration, retry)
    messages: list[ReceivedMessage] = []
    errors: dict[int, Exception] = {}
    for read in reading.calls(len(delivery.offsets)):
        for message in read:
            if message.offset < delivery.progress:
                continue
            if error := unreadable(message):
                errors[message.offset] = error
            else:
                messages.append(message)
        if messages:
            break
    first = messages[0].offset if messages else delivery.last_offset + 1
    closed = None
    if first > delivery.progress:
        failures = [Failure(at, error) for at, error in errors.items() if at < first]
        closed = close(delivery, first, failures, limits, reading.left_out)
        if delivery.progress > delivery.last_offset:
            return Opened((), closed)
    number = sum(message.offset == first + place for place, message in enumerate(messages))
    return Opened(messages[:number], closed)


def hold(delivery: Delivery, messages: Sequence[ReceivedMessage]) -> None:
    """Hold exactly the opened ``messages``. Raises LeaseLost.

    So whoever settles a result, or notices a death, need not know which messages there were.
    """
    end = messages[-1].offset + 1
    if end <= delivery.last_offset:
        keep_below(delivery, end)
