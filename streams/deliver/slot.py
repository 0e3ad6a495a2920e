"""Notes around each handler call, in memory that outlives the process, how far a claim has come.

A consumer process maps a file for it: process/shared/progress_file.py has the file, recovery.py
what follows from a slot when the process has died.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any
from zlib import crc32

from streams.conf import MAX_BATCH
from streams.consume.outcome.failure import Failure
from streams.deliver.reading import NOTHING, LeftOut
from streams.models import Delivery

# Each of two copies: its number, three offsets, the checksum of all, and the text.
_FRONT = Struct("<Qqqq")
_SUM = Struct("<I")
_TEXT_AT = _FRONT.size + _SUM.size
# One bit for each offset of a claim.
_BITS = -(-MAX_BATCH // 8)
# The delivery, its token and first offset; which offsets failed, are absent, and were passed over.
_CLAIM = Struct(f"<q32sq{_BITS}s{_BITS}s{_BITS}s")
COPY_SIZE = 512
SLOT_SIZE = 2 * COPY_SIZE
assert _TEXT_AT + _CLAIM.size <= COPY_SIZE  # noqa: S101 - of two constants

# Stands where the end of a running call is otherwise: the number before it has a bit for each call.
ANY_ORDER = -1

Memory = Any  # an mmap or a bytearray: a slice of it is replaced by bytes


class SlotDamaged(Exception):
    """Neither copy can be read: it is not a kill that has done this."""


class Copies:
    """A text and three numbers in memory, which are replaced as a whole.

    They are written by turns to two places, each with a checksum. Whoever is killed while it
    writes one leaves the other.
    """

    def __init__(self, memory: Memory, at: int, size: int) -> None:
        self._memory = memory
        self._at, self._size = at, size
        self._number = 0
        self._text, self._sum = b"", 0
        self._unsaid = 0  # how many of the places have another text still

    def move(self, memory: Memory) -> None:
        """Write to other memory from now on."""
        self._memory = memory
        self._unsaid = 2

    def put(self, one: int, two: int, three: int) -> None:
        self._number = number = self._number + 1
        front = _FRONT.pack(number, one, two, three)
        at = self._at + (number & 1) * self._size
        front += _SUM.pack(crc32(front, self._sum))
        if self._unsaid:
            self._unsaid -= 1
            front += self._text
        self._memory[at : at + len(front)] = front

    def say(self, text: bytes) -> None:
        """Let ``text`` be a part of what is put from now on."""
        self._text = text.ljust(self._size - _TEXT_AT, b"\0")
        self._sum = crc32(self._text)
        self._unsaid = 2


def newest(memory: bytes, at: int, size: int) -> tuple[int, int, int, bytes] | None:
    """Return what was put last into a Copies; None if nothing was. Raises SlotDamaged."""
    copies = memory[at : at + size], memory[at + size : at + 2 * size]
    if not any(copies[0]) and not any(copies[1]):
        return None
    found: list[tuple[int, int, int, int, bytes]] = []
    for copy in copies:
        front, text = copy[: _FRONT.size], copy[_TEXT_AT:]
        if len(copy) == size and any(front):
            (expected,) = _SUM.unpack_from(copy, _FRONT.size)
            if crc32(front, crc32(text)) == expected:
                found.append((*_FRONT.unpack(front), text))
    if not found:
        raise SlotDamaged
    _number, one, two, three, text = max(found)
    return one, two, three, text


@dataclass(frozen=True)
class Noted:
    """What a slot says of a claim: the offsets below ``ended`` need no call any more.

    The calls of ``failed`` have failed. Those of ``running`` were in a call. Of a claim that is
    settled in any order, ``begun`` are those whose calls had begun, also of those that are
    ``done``; None of any other.
    """

    delivery: int
    token: str
    ended: int
    running: range
    failed: frozenset[int]
    left_out: LeftOut
    begun: frozenset[int] | None = None
    done: frozenset[int] = frozenset()

    @property
    def called(self) -> frozenset[int]:
        """The messages that the call of ``running`` got.

        Between them are some that it did not get, such as those that the rate of their key holds
        back: no attempt of them is spent.
        """
        return frozenset(self.running).difference(self.left_out.unread, self.left_out.passed)


class UnreadSlot:
    """The notes of a thread that nobody would read: they are not written."""

    def claim(
        self, delivery: Delivery, left_out: LeftOut = NOTHING, *, begun: int = 0, done: int = 0
    ) -> None:
        """Begin with another claim. ``left_out`` grows while it is read.

        ``begun`` and ``done``: as for ``any_order``, of what has begun as a part of another claim.
        """

    def begin(self, first: int, stop: int) -> None:
        """Note that a call with the offsets ``first`` … ``stop`` - 1 begins now."""

    def end(self, stop: int, failed: Sequence[Failure] = ()) -> None:
        """Note that the call that has begun has ended, and what has failed."""

    def any_order(self, begun: int, done: int) -> None:
        """Note which calls of a claim settled in any order have begun, and ended, as bits."""


class ProgressSlot(UnreadSlot):
    """The notes of one worker thread about the claim that it has in hand."""

    def __init__(self, memory: Memory, at: int) -> None:
        self.copies = Copies(memory, at, COPY_SIZE)
        self._ended = self._first = 0
        self._failed = 0
        self._left_out, self._weight = NOTHING, 0

    def claim(
        self, delivery: Delivery, left_out: LeftOut = NOTHING, *, begun: int = 0, done: int = 0
    ) -> None:
        self._delivery = delivery.pk, delivery.token.encode()
        self._ended = self._first = delivery.first_offset
        self._failed = 0
        self._left_out = left_out
        self._describe()
        if begun or done:
            self.copies.put(done, begun, ANY_ORDER)
        else:
            self.copies.put(self._ended, self._ended, self._ended)

    def begin(self, first: int, stop: int) -> None:
        # Of single messages one after the other none can be left out in between.
        gap = first != self._ended or stop - first != 1
        if gap and self._weight != _weight(self._left_out):
            self._describe()
        self._ended = first  # there is no call for those before it
        self.copies.put(first, first, stop)

    def end(self, stop: int, failed: Sequence[Failure] = ()) -> None:
        if failed:
            self._failed |= _bits((failure.offset for failure in failed), self._first)
            self._describe()
        self._ended = stop
        self.copies.put(stop, stop, stop)

    def any_order(self, begun: int, done: int) -> None:
        if self._weight != _weight(self._left_out):
            self._describe()
        self.copies.put(done, begun, ANY_ORDER)

    def _describe(self) -> None:
        out = self._left_out
        self._weight = _weight(out)
        absent = _bits(out.missing | out.unread | out.early.keys(), self._first)
        marks = self._failed, absent, _bits(out.passed, self._first)
        texts = (mark.to_bytes(_BITS, "little") for mark in marks)
        self.copies.say(_CLAIM.pack(*self._delivery, self._first, *texts))


def _weight(out: LeftOut) -> int:
    return len(out.missing) + len(out.unread) + len(out.passed) + len(out.early)


def _bits(offsets: Iterable[int], first: int) -> int:
    found = 0
    for offset in offsets:
        found |= 1 << (offset - first)
    return found


def read(memory: bytes, at: int) -> Noted | None:
    """Return what the slot at ``at`` says; None if it was never used. Raises SlotDamaged."""
    found = newest(memory, at, COPY_SIZE)
    if found is None:
        return None
    ended, begun, stop, text = found
    delivery, token, first, *marks = _CLAIM.unpack_from(text)
    failed, absent, passed = (_offsets(mark, first) for mark in marks)
    token = token.rstrip(b"\0").decode()
    # Whether an absent one is gone for good is found out when it is read once more.
    left_out = LeftOut(passed=passed, unread=absent)
    if stop != ANY_ORDER:
        return Noted(delivery, token, ended, range(begun, stop), frozenset(failed), left_out)
    of_each = (frozenset(_offsets(mark.to_bytes(8, "little"), first)) for mark in (begun, ended))
    return Noted(delivery, token, first, range(0), frozenset(), left_out, *of_each)


def _offsets(mark: bytes, first: int) -> set[int]:
    bits = int.from_bytes(mark, "little")
    return {first + place for place in range(bits.bit_length()) if bits >> place & 1}
