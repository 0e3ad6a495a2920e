"""Defines everything that EMS raises: one tree under :class:`StreamsError`.

The docstring of a class is its default message. Errors of ``send()`` are raised before anything
is written, except :class:`SendOutcomeUnknown`, which says that nobody can know.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core import exceptions

from streams.rules.errors import DamagedBody as DamagedBody
from streams.rules.errors import InvalidMessage as InvalidMessage
from streams.rules.errors import InvalidName as InvalidName
from streams.rules.errors import MessageTooLarge as MessageTooLarge
from streams.rules.errors import NotSerializable as NotSerializable
from streams.rules.errors import StreamsError as StreamsError


class ConfigurationError(StreamsError):
    """The EMS settings are wrong."""


class Disabled(StreamsError):
    """EMS is off in this process, which neither sends nor consumes: see EMS["ENABLED"]."""


class NotMigrated(StreamsError):
    """The tables of EMS are missing on this database: run “manage.py migrate”."""

    @classmethod
    def on(cls, alias: str) -> NotMigrated:
        return cls(
            f"The tables of EMS are missing on {alias!r}:"
            f" run “manage.py migrate --database {alias}”."
        )


class UnknownTopic(StreamsError):
    """There is no such topic, and autoCreateTopic is off."""


class UnknownGroup(StreamsError):
    """The topic has no such consumer group."""


class TopicExists(StreamsError):
    """There is a topic of this name."""


class TopicInUse(StreamsError):
    """The topic cannot be deleted at present."""


class TaskRefused(StreamsError):
    """The task was not sent: it would be lost."""


class MoveRefused(StreamsError):
    """The topic cannot be moved to another database at present."""


class InvalidPartitions(StreamsError, ValueError):
    """A topic has 1 … 1000 partitions, and they only grow."""


class InvalidValue(StreamsError, ValueError):
    """This value cannot be set."""


class RedriveRunning(InvalidValue):
    """A redrive of the same dead letters runs; ``number`` is its number."""

    number = 0


class TopicDenied(StreamsError):
    """The topic does not accept this kind of access at present."""


class UnknownPartition(InvalidMessage):
    """The topic has no partition of this number."""


class NaiveDatetime(InvalidMessage):
    """A time without a time zone is ambiguous: pass an aware datetime."""


class SynchronousOnly(StreamsError, exceptions.SynchronousOnlyOperation):
    """This cannot be called in async code, whose event loop it would stop."""


class WrongDatabase(StreamsError):
    """The open transaction is on another database, so this send could not be part of it."""


class MixedShards(StreamsError):
    """The topics are on several databases, so they cannot be sent all or none: send one by one."""


class SendOutcomeUnknown(StreamsError):
    """The connection was lost before the server answered: the message may or may not be sent.

    Or the send took over 5 seconds, and its topic was closed meanwhile: the message has an offset,
    but perhaps nobody reads it.
    EMS never repeats a send by itself. Look the message up, or repeat it if your consumers can
    handle it twice.
    """


class UnknownPrepared(StreamsError):
    """There is no prepared message of this business and key.

    It was never prepared, or was purged, or the database lost it in a failover: prepare it again.
    """


class PreparedConflict(StreamsError):
    """A message with other content is prepared under this business and key."""


class AlreadyDecided(StreamsError):
    """The opposite was decided about this prepared message."""


class UnknownChecker(StreamsError):
    """Nobody of this name can be asked what became of a prepared message."""


class CheckFailed(StreamsError):
    """The checker gave no answer that can be used."""


class Unreachable(CheckFailed):
    """The endpoint cannot be reached: it was not asked."""


class Unanswered(CheckFailed):
    """The endpoint was asked, and has failed: no answer in its time, or 5xx."""


class InvalidConsumer(StreamsError, TypeError):
    """The consumer cannot be registered like this."""


class InvalidRetryPolicy(StreamsError, ValueError):
    """This is not a retry policy."""


class InvalidRate(StreamsError, ValueError):
    """This is not a rate: write 50/s, 90/m or 10/h, or “50/s, burst=10”."""


class InvalidDuration(StreamsError, ValueError):
    """This is not a duration: write 10s, 5m, 2h or 1d; a number alone is seconds."""


class GroupMismatch(StreamsError):
    """The group exists with another mode: mode and ordering are fixed when it is created."""


class StartNeeded(StreamsError):
    """The group is new and its topic holds messages: say where the group starts."""


class LogDamaged(StreamsError):
    """A partition cannot be sequenced: ems_doctor says how to repair it."""


class GroupActive(StreamsError):
    """The group has live consumers: stop them before this change."""


class NotBlocked(StreamsError):
    """No message blocks this partition of the group, or another one than was shown."""


class TooManyParked(StreamsError):
    """This message was not tried: parkedMessagesMax messages of the group wait for their keys."""


class AttemptRunning(StreamsError):
    """A consumer is handling the message just now: wait for the outcome."""


class NoSlowCall(StreamsError):
    """No running call of the group takes ten times as long as usual, or not this one."""


class PreviewStale(StreamsError):
    """What was shown is not so any more: look again."""


class OffsetOutOfRange(StreamsError, ValueError):
    """There is no such offset in the log: it has been purged, or does not exist yet."""


class InvalidTarget(StreamsError, ValueError):
    """This is not a target: say earliest, latest, an offset, orders/2@1200, a time, +N or -N."""


class InvalidPlace(StreamsError, ValueError):
    """This names no message: write its id, or its place in a log, such as orders/2@666687."""


class NothingToUndo(StreamsError):
    """The group has not been reset."""


class UnknownReplay(StreamsError):
    """The group has no such replay that is still running."""


class NotRehearsable(StreamsError):
    """The handler cannot be rehearsed here, or does what a rehearsal cannot undo."""


class StateUnusable(StreamsError):
    """EMS["STATE_DIR"] cannot be used, and broadcast consumers keep their positions there."""


class NameTaken(StreamsError):
    """Another process is the client of this name: positions belong to one process at a time."""


class PositionDamaged(StreamsError):
    """The file with the positions of a broadcast consumer cannot be read as one."""


class LeaseLost(StreamsError):
    """The delivery has been given to another consumer: its outcome here is not recorded."""


class TransactionEnded(StreamsError):
    """The transaction of an atomic handler ended before the handler did.

    The database rolled it back after a deadlock or a lock wait whose error the handler caught, or
    a statement such as CREATE TABLE, TRUNCATE or COMMIT committed it.
    """


class SessionChanged(StreamsError):
    """The handler did not leave the connection of EMS as it was.

    It has a transaction open, tables locked, a temporary table, or another value of a variable of
    the session, such as the time zone. What was not committed is rolled back.
    """


# A century. A later due date may be outside the range of a server's DATETIME column.
MAX_DELAY = timedelta(days=36525)


class Retry(Exception):
    """Raise this in a handler to see the message again later. It counts as an attempt.

    ``delay`` is a timedelta or a number of seconds, from 0 to a century; without it the retry
    delays decide. Raises ValueError for any other delay.
    """

    def __init__(self, reason: str = "", *, delay: timedelta | float | None = None) -> None:
        if delay is not None and not isinstance(delay, timedelta):
            delay = timedelta(seconds=delay)
        if delay is not None and delay < timedelta(0):
            raise ValueError("a retry cannot be due in the past")
        if delay is not None and delay > MAX_DELAY:
            raise ValueError("a retry cannot be more than a century away")
        super().__init__(reason)
        self.delay: timedelta | None = delay


class Postpone(Exception):
    """Raise this in a handler to see the message again later, with its attempt unspent.

    ``delay`` is a timedelta or a number of seconds, from 0 to a century. Raises ValueError for any
    other delay. Nothing has failed: there is no warning and no signal.
    """

    def __init__(self, delay: timedelta | float, reason: str = "") -> None:
        super().__init__(reason)
        self._delay = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
        if not timedelta(0) <= self._delay <= MAX_DELAY:
            raise ValueError("a message can be postponed by nothing to a century")

    @property
    def delay(self) -> timedelta:
        return self._delay


class Reject(Exception):
    """Raise this in a handler for a message that can never be handled.

    The message becomes a dead letter at once.
    """

    # Whether the dead letter shows the error from which this one was raised.
    shows_cause = False

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class InvalidBody(InvalidMessage, Reject):
    """The body is not of the type that the consumer says. The text names the place of the fault."""


class About:
    """A block whose errors of a kind are about one argument."""

    def __init__(self, field: str, kind: type[StreamsError] = StreamsError) -> None:
        self._field, self._kind = field, kind

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, self._kind):
            error.field = self._field


def describe(error: Any) -> str:
    """Return the class and the text of ``error`` on one line of at most 1,000 characters."""
    name, text = type(error).__name__, text_of(error)
    return " ".join((f"{name}: {text}" if text else name).split())[:1000]


def text_of(error: Any) -> str:
    """Return the text of ``error`` as any database can store it, whatever its ``__str__`` does."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - it is a handler's own class
        text = "(its text cannot be read)"
    return storable(text)


def storable(text: str) -> str:
    """Return ``text`` with what UTF-8 cannot encode (lone surrogates) escaped by a backslash."""
    return text.encode("utf-8", "backslashreplace").decode()
