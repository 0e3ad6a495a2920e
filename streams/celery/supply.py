"""Claims the messages of one topic for the workers of Celery."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from streams.api import ReceivedMessage
from streams.celery.naming import GROUP
from streams.conf import FRESH_SECONDS, MAX_ANY_ORDER
from streams.consume.limits import Limits, limits
from streams.consume.outcome import notices
from streams.consume.registry import Registration, find, registration_of
from streams.consume.subscription import subscribe
from streams.database.retrying import retrying
from streams.deliver.claim import Behind, Claimer
from streams.deliver.closing import Closed
from streams.deliver.opening import hold, open_whole
from streams.deliver.turns import Turns
from streams.errors import LeaseLost
from streams.log.sequencer import Pass
from streams.log.topics import resolve
from streams.models import ConsumerGroup, Delivery, RetryMessage
from streams.telemetry import handled

logger = logging.getLogger("streams.celery")

# For how long a delivery is held; the worker lets it be held longer before that. A dead worker is
# noticed by its own lease, so a task may take any time.
HOLD = timedelta(hours=1)


@dataclass(frozen=True)
class Taken:
    """A delivery, and what of it is to be handled: exactly its open offsets."""

    delivery: Delivery
    messages: Sequence[ReceivedMessage]
    alone: bool


class Supply:
    """One topic of a queue, as a worker claims from it."""

    def __init__(self, queue: str, topic: str, using: str) -> None:
        self.queue = queue
        self.registration: Registration = registration_of(topic, GROUP, start="earliest")
        self._using = using
        self._turns: Turns | None = None
        self._limits: Limits | None = None  # None: nothing may be handed out
        self._fresh_until = 0.0

    @property
    def known(self) -> Limits:
        """The limits of the group, also while it is paused."""
        assert self.group is not None  # noqa: S101 - whoever asks has claimed
        return self._limits or limits(self.group, self._decorated(), self._using)

    group: ConsumerGroup | None = None

    @property
    def more(self) -> bool:
        """Tell whether the last claim may have left something."""
        return self._turns is not None and self._turns.claimer.more

    def open(self) -> ConsumerGroup:
        """Find the group, and create it and its topic if they are missing."""
        resolve(self.registration.topic, self._using, create=True)
        self.group = subscribe(self.registration, self._using)
        return self.group

    def _decorated(self) -> Registration | None:
        return find(self.registration.topic, self.registration.group)

    def _may_claim(self) -> Limits | None:
        if self.group is None:  # the client has not joined it: a sweep would expire the claim
            return None
        if time.monotonic() >= self._fresh_until:
            rows = ConsumerGroup.objects.using(self._using).select_related("topic")
            group = retrying(rows.filter(pk=self.group.pk).first, self._using)
            if group is None:  # it was deleted; there is no claim before the client has joined it
                self.open()
                self._limits = None
                return None
            readable = not group.paused and group.topic.readable
            self.group = group
            self._limits = limits(group, self._decorated(), self._using) if readable else None
            self._fresh_until = time.monotonic() + FRESH_SECONDS
        return self._limits

    def claim(self, client: str, most: int) -> Taken | None:
        """Claim at most ``most`` new messages, or a retry; None if there is nothing."""
        turns = self._turns_of(client)
        while turns is not None:
            claimed = None
            with suppress(LeaseLost):  # an earlier claim was in doubt: see claim_retry()
                claimed = turns.claim(min(most, MAX_ANY_ORDER), HOLD)
            if claimed is None:
                break
            if taken := self._taken(*claimed):
                return taken
        return None

    def claim_sent(self, client: str, most: int, row: Behind) -> tuple[Taken | None, Pass]:
        """Sequence what was sent to the partition of a cursor, and claim it in one transaction.

        Return what was claimed, and what the pass leaves to ``claim``.
        """
        if (turns := self._turns_of(client)) is None:
            return None, Pass(more=True)
        claimed = turns.claim_sent(row, min(most, MAX_ANY_ORDER), HOLD)
        done = turns.claimer.sent
        return self._taken(*claimed) if claimed else None, done

    def _turns_of(self, client: str) -> Turns | None:
        """Return what makes the claims of ``client``; None if nothing may be handed out."""
        if self._may_claim() is None or self.group is None:
            return None
        if self._turns is None:
            self._turns = Turns(Claimer(self.group, client, "celery", self._using))
        claimer = self._turns.claimer
        claimer.client_id, claimer.group = client, self.group
        return self._turns

    def _taken(self, delivery: Delivery, retry: RetryMessage | None = None) -> Taken | None:
        """Open what was claimed; None if nothing of it is to be handled."""
        known = self.known
        with suppress(LeaseLost):
            opened = open_whole(delivery, retry, known, self.registration, _damage)
            if opened.closed:
                tell(self.registration, delivery, opened.closed)
            if opened.messages:
                hold(delivery, opened.messages)
                alone = bool(delivery.alone or (retry and retry.alone))
                return Taken(delivery, opened.messages, alone)
        return None


def tell(registration: Registration, delivery: Delivery, closed: Closed) -> None:
    """Tell what became of messages: by log records, signals and metrics."""
    topic, name = registration.topic, f"{registration.group} ({delivery.client_id})"
    notices.settled(delivery, closed.settlement, closed.gone, topic, name)
    handled(registration, closed.outcome)


def _damage(message: ReceivedMessage) -> Exception | None:
    """Return why the body cannot be read; the message keeps what is read of it here."""
    try:
        message.raw_body  # noqa: B018 - it is read here, once
    except ValueError as error:
        return error
    return None
