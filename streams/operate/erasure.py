"""Finds what is stored of one person, and erases the bodies: offsets, keys and states stay.

An erased message has the body ``null`` and the header ERASED. Deleting the row would leave a hole
in the log, which readers and the audit would report.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import connections
from django.db.models import Q, QuerySet

from streams import body as bodies
from streams.database.binary_log import bodies_left_out
from streams.database.retrying import retrying
from streams.database.transactions import own_transaction
from streams.errors import InvalidValue
from streams.log.unfinished import is_unfinished
from streams.logs import event
from streams.models import (
    DeadMessage,
    Delivery,
    LetterEdit,
    Message,
    Partition,
    PreparedRow,
    RetryMessage,
    State,
    Topic,
)
from streams.models.prepared import PreparedState

logger = logging.getLogger("streams.operate")

ERASED = "ems-erased"
# Rows of one statement that reads, or changes.
STEP = 500
# Offsets of one statement that looks for a key; for a value each body is read.
SEARCHED = 10_000
OVER = (PreparedState.SENT, PreparedState.ROLLED_BACK)
_MARK = {ERASED: "yes"}
_TOMBSTONE: dict[str, Any] = {
    "body": b"null",
    "body_type": bodies.JSON,
    "size": 4,
    "headers": _MARK,
}

# What other apps keep of messages: each erases it, given an alias, a topic and messages. It is
# called before these are overwritten, while they still say what they are, and again after it.
OTHERS: list[Callable[[str, str, Sequence[Message]], int]] = []


@dataclass(frozen=True)
class DataSubject:
    """Whose data it is: all with this ``key``, or whose JSON body has ``value`` at ``path``."""

    key: str | None = None
    path: str = ""
    value: str = ""

    def __post_init__(self) -> None:
        if (self.key is None) is not bool(self.path):
            raise InvalidValue("Say a key, or a path and a value.")

    @property
    def rows(self) -> Q:
        """Return what rows have that may be theirs."""
        return Q() if self.key is None else Q(key=self.key)

    def owns(self, row: Message | DeadMessage | LetterEdit | PreparedRow) -> bool:
        """Tell whether the row is theirs and not erased yet."""
        if _is_erased(row):
            return False
        if self.key is not None:
            return bool(row.key == self.key)
        raw = row.readable_body()
        if raw is None or row.body_type != bodies.JSON:
            return False
        try:
            found = json.loads(raw)
        except ValueError:
            return False
        for name in self.path.split("."):
            if isinstance(found, dict):
                found = found.get(name)
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                return False
        return found is not None and self.value in (found, json.dumps(found))


@dataclass(frozen=True)
class Erasure:
    """How many rows are theirs. ``unfinished`` messages are not handled by all groups yet."""

    messages: int = 0
    unfinished: int = 0
    dead_letters: int = 0
    edits: int = 0
    prepared: int = 0
    undecided: int = 0  # prepared messages that may still be sent: they are left
    others: int = 0  # rows of other apps, such as tasks
    # The newest places, for people.
    places: list[str] = field(default_factory=list)

    @property
    def found(self) -> int:
        return self.messages + self.dead_letters + self.edits + self.prepared + self.others


def find(subject: DataSubject, using: str, topic: str | None = None) -> Erasure:
    """Return what is stored of them; change nothing."""
    return _run(subject, using, topic, erases=False)


def erase(
    subject: DataSubject, using: str, who: str, reason: str, topic: str | None = None
) -> Erasure:
    """Erase the bodies, headers and errors, and say in the log who has done it and why.

    It may be interrupted and run again. Groups that have not finished a message get ``null``.
    """
    done = _run(subject, using, topic, erases=True)
    logger.info(
        "The bodies of %s were erased by %s (%s): %d messages, %d dead letters",
        *(_said(subject), who, reason, done.messages, done.dead_letters),
        extra=event(
            "bodies.erased",
            by=who,
            reason=reason,
            database=using,
            count=done.messages,
            letters=done.dead_letters,
        ),
    )
    return done


def _run(subject: DataSubject, using: str, topic: str | None, *, erases: bool) -> Erasure:
    topics = Topic.objects.using(using)
    found = Erasure()
    for one in topics.order_by("pk") if topic is None else topics.filter(name=topic):
        found = _of_topic(subject, one, using, found, erases=erases)
    rows = PreparedRow.objects.using(using).filter(subject.rows)
    mine = rows if topic is None else rows.filter(topic=topic)
    ids = [row.pk for row in mine.filter(state__in=OVER).iterator(STEP) if subject.owns(row)]
    left = sum(subject.owns(row) for row in mine.exclude(state__in=OVER).iterator(STEP))
    if erases:
        _overwrite(PreparedRow, Q(state__in=OVER), ids, using, context=None, last_error="")
    return replace(found, prepared=len(ids), undecided=left)


def _of_topic(
    subject: DataSubject, topic: Topic, using: str, found: Erasure, *, erases: bool
) -> Erasure:
    for partition in Partition.objects.using(using).filter(topic=topic).order_by("pk"):
        for rows in _messages(subject, partition, using):
            mine = [row for row in rows if subject.owns(row)]
            others = _erase_messages(topic, partition, mine, rows, using) if erases else 0
            open_ = [row for row in mine if is_unfinished(row, using)]
            found = replace(
                found,
                messages=found.messages + len(mine),
                unfinished=found.unfinished + len(open_),
                others=found.others + others,
                places=[*(str(row) for row in mine), *found.places][:20],
            )
    # After the messages: a letter that is written from now on copies what is erased.
    letters, edits = _letters(subject, topic, using)
    if erases:
        _overwrite(DeadMessage, Q(topic=topic.pk), letters, using, error="", traceback="")
        _overwrite(LetterEdit, Q(), edits, using)
    return replace(
        found,
        dead_letters=found.dead_letters + len(letters),
        edits=found.edits + len(edits),
    )


def _erase_messages(
    topic: Topic,
    partition: Partition,
    mine: Sequence[Message],
    rows: Sequence[Message],
    using: str,
) -> int:
    """Erase the messages ``mine``, and what repeats any of ``rows``; count what other apps have.

    The others of ``rows`` were erased before: that run may have been killed in between, and a
    handler that had read one may have failed since.
    """
    _erase_others(topic, mine, using)
    _overwrite(Message, Q(partition=partition.pk), [row.pk for row in mine], using)
    _wait_for_outcomes(partition, mine, using)
    place = {"partition": partition.pk, "offset__in": [row.offset for row in rows]}
    retries = RetryMessage.objects.using(using).filter(**place).exclude(last_error="")
    retrying(lambda: retries.update(last_error=""), using)
    return _erase_others(topic, rows, using)


def _erase_others(topic: Topic, rows: Sequence[Message], using: str) -> int:
    return sum(other(using, topic.name, rows) for other in OTHERS)


def _messages(subject: DataSubject, partition: Partition, using: str) -> Iterator[list[Message]]:
    """Yield their messages, and those erased before, in lists of at most STEP.

    First those of the log, by ranges of offsets, then those of the inbox.
    """
    rows = Message.objects.using(using).filter(partition=partition.pk)
    end = Partition.objects.using(using).get(pk=partition.pk).next_offset
    step = STEP if subject.key is None else SEARCHED
    for start in range(partition.first_offset, end, step):
        yield from _of(subject, rows.filter(offset__gte=start, offset__lt=start + step))
    yield from _of(subject, rows.filter(offset=None))
    yield from _of(subject, rows.filter(offset__gte=end))  # they got their offsets meanwhile


def _of(subject: DataSubject, rows: QuerySet[Message]) -> Iterator[list[Message]]:
    found = [row for row in rows.filter(subject.rows) if subject.owns(row) or _is_erased(row)]
    for start in range(0, len(found), STEP):
        yield found[start : start + STEP]


def _is_erased(row: Message | DeadMessage | LetterEdit | PreparedRow) -> bool:
    return bool((row.headers or {}).get(ERASED))


def _overwrite(model: Any, still: Q, ids: Sequence[int], using: str, **more: Any) -> None:
    """Write the tombstone into rows that are still there; their bodies leave the binary log out."""
    rows = model._base_manager.using(using)
    for start in range(0, len(ids), STEP):
        some = rows.filter(still, pk__in=ids[start : start + STEP])

        def write(some: Any = some) -> None:
            with bodies_left_out(using), own_transaction(using):
                some.update(**_TOMBSTONE, **more)

        retrying(write, using)


def _wait_for_outcomes(partition: Partition, rows: Sequence[Message], using: str) -> None:
    """Wait until no transaction is open that may have copied one of them into a dead letter.

    It has locked its delivery before. A handler with atomic=True is waited for, too.
    """
    offsets = [row.offset for row in rows if row.offset is not None]
    if not offsets or connections[using].vendor == "sqlite":  # there is one writer at a time
        return
    open_ = Delivery.objects.using(using).filter(
        partition=partition.pk,
        state=State.START,
        first_offset__lte=max(offsets),
        last_offset__gte=min(offsets),
    )
    for pk in list(open_.order_by("pk").values_list("pk", flat=True)):

        def wait(pk: int = pk) -> None:
            with own_transaction(using):
                Delivery.objects.using(using).select_for_update().filter(pk=pk).first()

        retrying(wait, using)


def _letters(subject: DataSubject, topic: Topic, using: str) -> tuple[list[int], list[int]]:
    """Return the ids of their dead letters and of what these were before an edit."""
    rows = DeadMessage.objects.using(using).filter(topic=topic.pk)
    mine = {row.pk for row in rows.filter(subject.rows).iterator(STEP) if subject.owns(row)}
    edited = list(rows.edited().values_list("pk", flat=True))
    edits = LetterEdit.objects.using(using).filter(letter__in=edited)
    theirs = [one.pk for one in edits.iterator(STEP) if subject.owns(one)]
    return sorted(mine), theirs


def _said(subject: DataSubject) -> str:
    return f"key {subject.key!r}" if subject.path == "" else f"{subject.path} = {subject.value!r}"
