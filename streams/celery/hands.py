"""Holds the deliveries that this process has in hand, and settles their messages as they end."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count

from streams.api import ReceivedMessage
from streams.celery.supply import HOLD, Supply, Taken, tell
from streams.consume.outcome.any_order import Ends, bits, settle_any_order, split
from streams.consume.outcome.failure import Failure
from streams.consume.outcome.settle import release
from streams.database.retrying import retrying
from streams.deliver.closing import Outcome, close
from streams.deliver.slot import UnreadSlot
from streams.errors import LeaseLost, Reject, Retry
from streams.models import Delivery, Kind, UtcNow
from streams.process.shared.progress_file import NoFile, ProgressFile
from streams.telemetry import handled

# As many deliveries may be in hand: each has its slot in the progress file.
MOST = 128

_tags = count(1)


@dataclass(eq=False)
class Hand:
    """A delivery in hand: which of its messages have begun and have ended, as bits."""

    supply: Supply
    delivery: Delivery
    name: str  # of its slot
    slot: UnreadSlot
    alone: bool
    settled: int = 0
    begun: int = 0
    # A split of it has begun, and may have been committed without a reply. From then on only its
    # parts are written.
    splitting: bool = False
    since: float = field(default_factory=time.monotonic)
    extended: float = field(default_factory=time.monotonic)

    @property
    def in_any_order(self) -> bool:
        return self.delivery.kind != Kind.RETRY

    def has(self, token: str, offset: int) -> bool:
        """Tell whether it has an offset of the claim of ``token``; parts of a claim share it."""
        return self.delivery.token == token and offset in self.delivery.offsets

    def bit(self, offset: int) -> int:
        return 1 << (offset - self.delivery.first_offset)

    def note(self) -> None:
        """Note how far it is, for whoever finds this process dead."""
        if self.in_any_order:
            self.slot.any_order(self.begun, self.settled)


class Hands:
    """All that is in hand. Any thread may say what ended; ``flush`` writes it, one at a time."""

    def __init__(self, using: str, file: ProgressFile | NoFile) -> None:
        self._using = using
        self._file = file
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._free = [str(number) for number in range(MOST)]
        self._hands: set[Hand] = set()
        self._places: dict[int, tuple[Hand, int]] = {}  # by tag: the hand and the offset
        self._ended: set[Hand] = set()
        self._failed: list[tuple[Hand, int, Exception | None]] = []
        self.settled = 0  # messages, since the start

    @property
    def full(self) -> bool:
        return not self._free

    @property
    def alone(self) -> bool:
        """Tell whether a message is in hand beside which no other may be."""
        return any(hand.alone for hand in list(self._hands))

    @property
    def pending(self) -> bool:
        return bool(self._ended or self._failed)

    def take(self, supply: Supply, taken: Taken) -> list[tuple[int, ReceivedMessage]]:
        """Have a delivery in hand; return its messages, each with the tag that settles it.

        The list is empty if the delivery is lost.
        """
        delivery = taken.delivery
        first = delivery.first_offset
        with self._lock:
            hand = Hand(supply, delivery, *self._free_slot(), taken.alone)
            # What was absent before the first message is settled already.
            hand.settled = bits(range(first, delivery.progress), first)
            hand.slot.claim(delivery)
            self._hands.add(hand)
            tagged = [(next(_tags), message) for message in taken.messages]
            self._places |= {tag: (hand, message.offset) for tag, message in tagged}
        try:
            self._start(hand)
        except LeaseLost:
            self._drop(hand)
        except BaseException:
            self._drop(hand)  # the next look gives it back, as a stray
            raise
        return tagged if hand in self._hands else []

    def _start(self, hand: Hand) -> None:
        """Record the start of what counts by it. Raises LeaseLost.

        Its worker may have begun it before anything is heard of that. The slot is there before:
        by it, whoever finds this process dead knows whether the start was one.
        """
        delivery = hand.delivery
        if not delivery.started_at and delivery.counts_starts(is_last=hand.supply.known.one_call):
            delivery.start(HOLD)

    def _free_slot(self) -> tuple[str, UnreadSlot]:
        name = self._free.pop() if self._free else ""
        return name, self._file.slot(name) if name else UnreadSlot()

    def _part_of(self, whole: Hand, delivery: Delivery) -> Hand:
        """Have a part of a delivery in hand, and note what of it has begun and has ended.

        The part that keeps the row of the whole keeps its slot: of two slots that name one row
        the older one might be believed.
        """
        if delivery.pk == whole.delivery.pk:
            name, slot = whole.name, whole.slot
            whole.name = ""
        else:
            name, slot = self._free_slot()
        hand = Hand(whole.supply, delivery, name, slot, alone=False)
        for at in delivery.offsets:
            if whole.begun & whole.bit(at):
                hand.begun |= hand.bit(at)
            # Also what has ended since the split.
            if whole.settled & whole.bit(at):
                hand.settled |= hand.bit(at)
                self._ended.add(hand)
        slot.claim(delivery, begun=hand.begun, done=hand.settled)
        self._hands.add(hand)
        return hand

    def begin(self, tags: Iterable[int]) -> None:
        """Note that messages are handled from now on: whoever finds this process dead must know."""
        with self._lock:  # the slot of a hand that is dropped is another's
            for tag in tags:
                if place := self._places.get(tag):
                    self._begin(*place)

    def _begin(self, hand: Hand, offset: int) -> None:
        if hand.in_any_order and not hand.begun & hand.bit(offset):
            hand.begun |= hand.bit(offset)
            hand.note()
        elif not hand.begun:
            hand.begun = 1
            hand.slot.begin(offset, offset + 1)

    def ack(self, tag: int) -> bool:
        """Note that a message has been handled; return False if it is not in hand any more."""
        with self._lock:
            place = self._places.pop(tag, None)
            if place is None:
                return False
            hand, offset = place
            hand.settled |= hand.bit(offset)
            hand.note()
            if not hand.in_any_order:
                hand.slot.end(offset + 1)
            self._ended.add(hand)
            self.settled += 1
        return True

    def reject(self, tag: int, *, requeue: bool, reason: str = "rejected") -> bool:
        """Note that a message has failed: it comes back at once, or is a dead letter."""
        return self._end(tag, Retry("requeued", delay=0) if requeue else Reject(reason))

    def give_back_one(self, tag: int) -> bool:
        """Note that a message is not handled here; if it had begun, it has spent an attempt.

        A cold shutdown of a worker ends what runs like this.
        """
        return self._end(tag)

    def _end(self, tag: int, error: Exception | None = None) -> bool:
        with self._lock:
            place = self._places.pop(tag, None)
            if place is not None:
                hand, offset = place
                if error is None and hand.begun & hand.bit(offset):
                    error = _worker_ended()
                self._failed.append((hand, offset, error))
        return place is not None

    def lose(self) -> int:
        """Forget all: others may have it by now. Return how many messages that were."""
        with self._lock:
            lost = len(self._places)
            for hand in list(self._hands):
                self._forget(hand)
            self._places.clear()
            self._ended.clear()
            self._failed.clear()
        return lost

    def _forget(self, hand: Hand) -> None:
        self._hands.discard(hand)
        if hand.name:
            self._free.append(hand.name)
            hand.name = ""

    def flush(self, until: float = math.inf) -> bool:
        """Write what has ended since the last time; return whether anything was written.

        What could not be written, as the database is away, is written the next time; so are
        failures and releases, but for the first, after ``until``, an instant of time.monotonic().
        Each of them takes several statements.
        """
        with self._writing:
            return self._flush(until)

    def _flush(self, until: float) -> bool:
        with self._lock:
            ended, self._ended = self._ended, set()
            failed, self._failed = self._failed, []
        try:
            # A hand that is being split is left out: _part passes what has ended to its parts.
            self._settle(hand for hand in ended if not hand.splitting)
            while failed:
                self._fail(*failed[0])
                del failed[0]
                if time.monotonic() >= until:
                    break
        except BaseException:
            with self._lock:
                self._ended |= ended & self._hands
            raise
        finally:
            with self._lock:
                self._failed = [*failed, *self._failed]
        return bool(ended or failed)

    def _settle(self, hands: Iterable[Hand]) -> None:
        now = time.monotonic()
        together: list[tuple[Hand, Ends]] = []
        for hand in hands:
            if hand.in_any_order:
                ends = Ends(hand.delivery, hand.settled, timedelta(seconds=now - hand.since))
                together.append((hand, ends))
            else:
                with suppress(LeaseLost):
                    self._close(hand, [])
                self._drop(hand)
        lost = {one.pk for one in settle_any_order([ends for _, ends in together], self._using)}
        counts: dict[Supply, int] = {}
        for hand, ends in together:
            if hand.delivery.pk in lost:
                self._drop(hand)
            elif ends.whole:
                counts[hand.supply] = counts.get(hand.supply, 0) + len(hand.delivery.offsets)
                with self._lock:
                    self._forget(hand)
        for supply, number in counts.items():
            handled(supply.registration, Outcome(done=number))

    def _fail(self, hand: Hand, offset: int, error: Exception | None) -> None:
        """Record a failure, or a release, in a delivery of its own; the rest stays in hand."""
        if hand not in self._hands:
            # A part of it has failed before: its offsets are in other hands now.
            token = hand.delivery.token
            hand = next((one for one in self._hands if one.has(token, offset)), hand)
        try:
            if len(hand.delivery.offsets) > 1:
                hand = self._part(hand, offset)
            if error is None:
                release(hand.delivery)
            else:
                self._close(hand, [Failure(offset, error)])
        except LeaseLost:
            pass
        self._drop(hand)

    def _part(self, hand: Hand, offset: int) -> Hand:
        """Split what is in hand; return the hand that has ``offset`` only. Raises LeaseLost."""
        tried = hand.splitting
        if not tried:
            self._settle([hand])
            hand.splitting = True
        parts = split(hand.delivery, {offset}, tried=tried)
        with self._lock:
            # The slot of the whole is written last: till then it tells of all parts.
            parts.sort(key=lambda part: part.pk == hand.delivery.pk)
            hands = [self._part_of(hand, part) for part in parts]
            parted = {at: one for one in hands for at in one.delivery.offsets}
            for tag, (owner, at) in self._places.items():
                if owner is hand and at in parted:
                    self._places[tag] = (parted[at], at)
            self._ended.discard(hand)
        self._drop(hand)
        part = parted.get(offset)
        if part is None or len(part.delivery.offsets) > 1:
            raise LeaseLost
        return part

    def _drop(self, hand: Hand) -> None:
        with self._lock:
            if hand in self._hands:
                self._forget(hand)
            for tag in [tag for tag, (owner, _at) in self._places.items() if owner is hand]:
                del self._places[tag]

    def _close(self, hand: Hand, failures: Sequence[Failure]) -> None:
        running = timedelta(seconds=time.monotonic() - hand.since)
        end = hand.delivery.last_offset + 1
        closed = close(hand.delivery, end, failures, hand.supply.known, running=running)
        tell(hand.supply.registration, hand.delivery, closed)

    def extend(self) -> None:
        """Let the deliveries be held longer, before their deadlines come near."""
        now = time.monotonic()
        old = [one for one in list(self._hands) if now - one.extended > HOLD.total_seconds() / 3]
        if not old:
            return
        rows = Delivery.objects.using(self._using).held()
        mine = rows.filter(pk__in=[hand.delivery.pk for hand in old])
        retrying(lambda: mine.update(deadline=UtcNow(HOLD)), self._using)
        for hand in old:
            hand.extended = now

    def give_back_strays(self, client: str) -> None:
        """Give back what ``client`` has claimed and nobody has in hand: the claim failed midway.

        Nothing else would: the client lives. Only the thread that claims may call this.
        """
        with self._writing:  # the parts of a split are written before they are in hand
            known = [hand.delivery.pk for hand in list(self._hands)]
            rows = Delivery.objects.using(self._using).held().filter(client_id=client)
            rows = rows.exclude(pk__in=known).select_related("group__topic", "partition")
            splitting = [hand for hand in list(self._hands) if hand.splitting]
            for stray in retrying(list, self._using, rows):
                # The parts of a split whose reply was lost are in hand as the whole.
                if any(hand.has(stray.token, stray.first_offset) for hand in splitting):
                    continue
                with suppress(LeaseLost):
                    release(stray)

    def give_back(self) -> None:
        """Release all that is in hand; what had begun has spent an attempt."""
        for hand in list(self._hands):
            with suppress(LeaseLost):
                begun = [at for at in hand.delivery.offsets if hand.begun & hand.bit(at)]
                for part in split(hand.delivery, begun) if hand.in_any_order else [hand.delivery]:
                    if part.first_offset in begun:
                        known = hand.supply.known
                        failure = Failure(part.first_offset, _worker_ended())
                        closed = close(part, part.last_offset + 1, [failure], known)
                        tell(hand.supply.registration, part, closed)
                    else:
                        release(part)
            self._drop(hand)


def _worker_ended() -> Retry:
    """Return what a message has failed with that had begun when its worker ended."""
    return Retry("its worker has ended", delay=0)
