"""Moves a topic to another database, where its offsets, groups and settings go on.

No message is lost or handled twice by it, and (topic, partition, offset) names one message in both
logs together. First the topic is closed. After SETTLED_SECONDS every message that will ever come to
the old database is in ems_msg, if only in an open transaction (operate/topic_deletion.py). Then,
under the locks of the topic and its partitions, all must be finished. While they are held, one
transaction on the new database writes the topic there (operate/topic_copy.py), already open.

Both databases get a row of Move with one token. That of the new database is committed with the
topic, so it tells whether the topic has moved. Without it, the move can be given up; with it, a
move that was killed, or whose reply was lost, needs only its last steps on the old database.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any
from uuid import uuid4

from django.db import Error, IntegrityError, connections
from django.db.models import Count, Max, Q

from streams.database.retrying import connection_lost, retrying, tables_missing
from streams.database.transactions import own_transaction
from streams.errors import MoveRefused, NotMigrated, TopicInUse
from streams.log.lag import lags
from streams.log.topics import forget
from streams.models import (
    Access,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Message,
    Mode,
    Move,
    Partition,
    PreparedRow,
    Redrive,
    Topic,
    UtcNow,
)
from streams.models.prepared import UNFINISHED
from streams.models.stress_run import PREFIX
from streams.operate import moved_retries
from streams.operate.topic_copy import CLOSED, TopicCopy
from streams.operate.topic_deletion import SETTLED_SECONDS, count_inbox
from streams.operate.topics import topic_of
from streams.plural import plural

# For how many seconds the groups may finish what is there, once the topic is closed.
PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 1.0
# What counts as closed for producers, and lets consumers read as much as before.
CLOSING = {Access.READ_WRITE: Access.READ_ONLY, Access.WRITE_ONLY: Access.DENIED}
# Rows are counted up to this number.
COUNT_AT_MOST = 10_000


class Unfinished(Exception):
    """Something is there that consumers may finish by themselves."""


class TopicMove:
    """The move of a topic from the alias ``source`` to ``target``. It may be killed, and repeated.

    ``with_retries`` takes waiting retries along; otherwise they are an obstacle. Raises
    UnknownTopic.
    """

    def __init__(
        self, name: str, source: str, target: str, *, who: str = "", with_retries: bool = False
    ) -> None:
        self.topic = topic_of(name, source)
        self.source = source
        self.target = target
        self.who = who
        self.with_retries = with_retries
        self._copy = TopicCopy(self.topic, source, target)
        self._token = ""  # of the move that close() has begun, or found

    @property
    def is_over(self) -> bool:
        """Tell whether the topic has moved from here to the target, and not come back."""
        return self._ended() is not None

    def obstacles(self) -> list[str]:
        """Return the reasons not to move the topic that do not pass by themselves, as texts.

        Raises NotMigrated if the tables of EMS are missing on the target.
        """
        try:
            return [*self._lasting(), *self._retries()]
        except Error as error:
            if tables_missing(error):
                raise NotMigrated.on(self.target) from error
            raise

    def unfinished(self) -> list[str]:
        """Return what consumers still have to finish, as texts."""
        return list(self._unfinished())

    def letters(self) -> int:
        """Return how many dead letters wait for a redrive: they stay where they are."""
        return DeadMessage.objects.using(self.source).waiting().filter(topic=self.topic.pk).count()

    def broadcast_groups(self) -> list[str]:
        """Return the broadcast groups: only the disks of their clients say how far these are."""
        rows = self._groups().filter(mode=Mode.BROADCAST)
        return list(rows.order_by("name").values_list("name", flat=True))

    def run(
        self,
        say: Callable[[str], None] = lambda text: None,
        pause: Callable[[float], Any] = time.sleep,
    ) -> None:
        """Move the topic: close, wait for sends and consumers, write it on the target.

        ``say`` is called with what it waits for. If it cannot be done, the topic is opened again.
        Raises MoveRefused.
        """
        if self.is_over:
            return
        begun = self._begun()
        if begun and begun.target == self.target:  # given up, too, if there are obstacles
            self._token = begun.token
        try:
            self.close()
            say(f"waiting {SETTLED_SECONDS:.0f} s for sends that are under way")
            pause(SETTLED_SECONDS)
            self._finish_in_time(say, pause)
        except BaseException:
            if self._token:
                self.give_up()
            raise

    def close(self) -> None:
        """Refuse producers from now on; raises MoveRefused if there are obstacles."""
        # Another run may end the move while this one looks.
        if (obstacles := self.obstacles()) and not self.is_over:
            raise MoveRefused(" ".join(obstacles))
        retrying(self._close, self.source)
        forget()

    def finish(self) -> None:
        """Write the topic on the target, once it was closed for SETTLED_SECONDS.

        Raises Unfinished if consumers still have something to do, and MoveRefused.
        """
        if self.with_retries:
            # Committed before: nobody claims them here while they are written there.
            retrying(self._hold_retries, self.source)
        retrying(self._finish, self.source)
        forget()

    def give_up(self) -> None:
        """Open the topic again as it was, unless it has moved."""
        retrying(self._give_up, self.source)
        forget()

    def give_up_killed(self) -> None:
        """Give up the move from here that was killed, to whatever target.

        Raises MoveRefused if there is none, or if the topic has moved.
        """
        begun = self._begun()
        if begun is None:
            raise MoveRefused(f"No move of {self.topic} from here is under way.")
        self._token = begun.token
        self.give_up()
        if self._begun():
            raise MoveRefused(
                f"{self.topic} has moved to {begun.target}: say that move again, to finish it here."
            )

    # -- what is in the way --

    def _lasting(self) -> Iterator[str]:
        if not_from_here := list(self._of_move()):
            yield from not_from_here
            return
        yield from self._of_groups()
        yield from self._of_messages()
        begun = self._begun()
        if not (begun and self._has_landed(begun)):
            yield from self._copy.obstacles()

    def _of_move(self) -> Iterator[str]:
        if self.source == self.target:
            yield f"{self.topic} is on {self.target} already."
        if self.topic.name.startswith(PREFIX):
            yield f"{self.topic} is the topic of a stress test."
        last = self._last()
        if last is None or last.source != self.source:
            return
        if last.finished_at:
            yield f"{self.topic} has moved to {last.target}: move it from there."
        elif last.target != self.target and (self._access() in CLOSED or self._has_landed(last)):
            yield (
                f"{self.topic} is being moved to {last.target}: finish that, or open the topic"
                " again."
            )

    def _of_groups(self) -> Iterator[str]:
        groups = list(self._groups())
        for lag in self._lags(groups):
            if lag.consumers and not lag.group.paused:
                continue
            if unfinished := (lag.behind or 0) + lag.open:
                messages = plural(unfinished, "message", "messages")
                yield f"{lag.group} has not finished {messages}, and nobody consumes."
        if not groups and Message.objects.using(self.source).filter(
            partition__in=self._partition_ids(), offset__isnull=False
        ):
            yield "Messages are there, and no group has read them."
        ids = [group.pk for group in groups]
        replays = Cursor.objects.using(self.source).unended().filter(group__in=ids)
        if replays.exists():
            yield "A replay has not ended: see “ems_groups replays”."
        for redrive in Redrive.objects.using(self.source).unfinished():
            letters = DeadMessage.objects.using(self.source).filter(topic=self.topic.pk)
            if letters.filter(
                Q(pk__in=redrive.ids or []) | Q(group__in=redrive.groups if not redrive.ids else [])
            ).exists():
                yield f"Redrive {redrive.pk} has not ended: let it end, or stop and delete it."

    def _of_messages(self) -> Iterator[str]:
        inbox = (
            Message.objects.using(self.source).inbox().filter(partition__in=self._partition_ids())
        )
        delayed = inbox.filter(due_at__gt=UtcNow()).aggregate(n=Count("pk"), until=Max("due_at"))
        if count := delayed["n"]:
            there = plural(count, "delayed message is there", "delayed messages are there")
            it = "it" if count == 1 else "them"
            yield f"{there}, until {_minute(delayed['until'])}: wait, or cancel {it}."
        prepared = PreparedRow.objects.using(self.source).filter(
            topic=self.topic.name, state__in=UNFINISHED
        )
        if count := prepared[:COUNT_AT_MOST].count():
            yield plural(
                count,
                "prepared message may still be sent to it.",
                "prepared messages may still be sent to it.",
            )

    def _retries(self) -> Iterator[str]:
        if self.with_retries:
            return
        waiting = moved_retries.waiting(self.topic.pk, self.source)
        found = waiting.aggregate(n=Count("pk"), until=Max("due_at"))
        if count := found["n"]:
            wait = plural(count, "message waits to be retried", "messages wait to be retried")
            it = "it" if count == 1 else "them"
            yield f"{wait}, until {_minute(found['until'])}: --with-retries takes {it} along."

    def _unfinished(self) -> Iterator[str]:
        for lag in self._lags(self._groups()):
            if count := (lag.behind or 0) + lag.open:
                yield f"{lag.group} has not finished {plural(count, 'message', 'messages')}."

    # -- the move --

    def _close(self) -> None:
        with own_transaction(self.source):
            access = self._lock().access
            if ended := self._ended():
                self._token = ended.token
                return  # moved by another run, since this one has looked
            last = self._begun()
            if last and (access in CLOSED or not self._bar(last)):
                self._token = last.token
                return  # begun by a run that was killed, or by one that is under way
            if last:  # it was given up: somebody has opened the topic again
                moved_retries.release(self.topic.pk, self.source)
                last.delete(using=self.source)
            self._token = uuid4().hex
            Move.objects.using(self.source).create(
                name=self.topic.name,
                token=self._token,
                source=self.source,
                target=self.target,
                access=access,
                who=self.who[:255],
            )
            self._set_access(_closed(access))

    def _finish_in_time(self, say: Callable[[str], None], pause: Callable[[float], Any]) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self.finish()
            except Unfinished as error:
                if time.monotonic() > until:
                    raise MoveRefused(str(error)) from error
                say(str(error))
            pause(LOOK_SECONDS)

    def _hold_retries(self) -> None:
        with own_transaction(self.source):
            self._lock()
            move = self._begun()
            if move and move.token == self._token and not self._has_landed(move):
                moved_retries.hold(self.topic.pk, self.source)

    def _finish(self) -> None:
        with own_transaction(self.source):
            topic = self._lock()
            move = Move.objects.using(self.source).filter(token=self._token).first()
            if move is None:
                raise MoveRefused("The move was given up: somebody has opened the topic again.")
            if move.finished_at:
                return
            if not self._has_landed(move):
                if topic.access not in CLOSED:
                    raise MoveRefused(f"{self.topic} was opened again: begin anew.")
                if topic.access != _closed(move.access):
                    raise MoveRefused(f"The access of {self.topic} was changed: begin anew.")
                self._refuse_unfinished()
                self._write(topic, move)
            moved_retries.remove(self.topic.pk, self.source)
            self._set_access(_closed(topic.access))
            Move.objects.using(self.source).filter(pk=move.pk).update(finished_at=UtcNow())

    def _refuse_unfinished(self) -> None:
        """Refuse unless all is finished; the topic is locked."""
        waiting = sum(self._count_inbox(partition) for partition in self._lock_partitions())
        if obstacles := list(self._lasting()):
            raise MoveRefused(" ".join(obstacles))
        unfinished = [*self._unfinished(), *self._retries()]
        if waiting:
            unfinished.append(
                plural(waiting, "message is in the inbox.", "messages are in the inbox.")
            )
        # Also one that was claimed since the claims were counted: its row lives until it is done.
        if not unfinished and moved_retries.left(self.topic.pk, self.source).exists():
            unfinished.append("A message has failed meanwhile.")  # it is not held yet
        if unfinished:
            raise Unfinished(" ".join(unfinished))

    def _count_inbox(self, partition: Partition) -> int:
        try:
            return count_inbox(partition, self.topic, self.source)
        except TopicInUse as error:
            raise Unfinished(str(error)) from error

    def _write(self, topic: Topic, move: Move) -> None:
        try:
            with own_transaction(self.target):
                self._copy.write(topic, move)
                # If the connection that holds the locks is lost, nothing is committed there.
                self._lock()
        except IntegrityError as error:
            raise MoveRefused(
                f"{self.topic} was made on {self.target} meanwhile: try again."
            ) from error
        except Error as error:
            if connection_lost(error):  # the caller repeats it, and closes that of the source
                connections[self.target].close()
            raise

    def _give_up(self) -> None:
        with own_transaction(self.source):
            access = self._lock().access
            move = self._begun()
            if move is None or move.token != self._token or not self._bar(move):
                return
            moved_retries.release(self.topic.pk, self.source)
            if access == _closed(move.access):  # otherwise somebody has set it meanwhile
                self._set_access(Access(move.access))
            move.delete(using=self.source)

    def _bar(self, move: Move) -> bool:
        """Make sure that the topic does not come to its target any more; False if it is there.

        The row of the token on the target waits for a transaction whose outcome is unknown, and
        keeps any other from being committed.
        """

        def work() -> bool:
            with own_transaction(move.target):
                rows = Move.objects.using(move.target)
                values = {"source": move.source, "target": move.target, "access": move.access}
                row, created = rows.get_or_create(
                    token=move.token, defaults={"name": move.name, **values}
                )
                return created or row.finished_at is None

        return retrying(work, move.target)

    # -- rows --

    def _last(self) -> Move | None:
        return Move.last_of(self.topic.name, self.source)

    def _begun(self) -> Move | None:
        """Return the move from here that is not finished."""
        last = self._last()
        return last if last and last.source == self.source and not last.finished_at else None

    def _ended(self) -> Move | None:
        """Return the move from here to the target, if that is the last one and has ended."""
        last = self._last()
        if last is None or not last.finished_at:
            return None
        return last if (last.source, last.target) == (self.source, self.target) else None

    def _has_landed(self, move: Move) -> bool:
        """Tell whether the topic is on the database to which it moves, or has moved."""
        rows = Move.objects.using(move.target).filter(token=move.token)
        return bool(rows.exclude(finished_at=None).exists())

    def _lock(self) -> Topic:
        """Lock the topic: it gets no groups and no partitions; raises MoveRefused if it is gone."""
        rows = Topic.objects.using(self.source).select_for_update()
        topic = rows.filter(pk=self.topic.pk).first()
        if topic is None:
            raise MoveRefused(f"There is no topic {self.topic}.")
        return topic

    def _lock_partitions(self) -> list[Partition]:
        rows = Partition.objects.using(self.source).filter(topic=self.topic.pk)
        return list(rows.select_for_update().order_by("number"))

    def _access(self) -> str:
        rows = Topic.objects.using(self.source).filter(pk=self.topic.pk)
        return rows.values_list("access", flat=True).get()

    def _set_access(self, access: Access) -> None:
        Topic.objects.using(self.source).filter(pk=self.topic.pk).update(access=access)

    def _groups(self) -> Any:
        groups = ConsumerGroup.objects.using(self.source).filter(topic=self.topic.pk)
        return groups.select_related("topic")

    def _lags(self, groups: Any) -> Any:
        return lags(groups, self.source)

    def _partition_ids(self) -> list[int]:
        rows = Partition.objects.using(self.source).filter(topic=self.topic.pk)
        return list(rows.values_list("pk", flat=True))


def _minute(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _closed(access: str) -> Access:
    """Return the access that a topic with ``access`` has while it moves, and afterwards."""
    return CLOSING.get(Access(access), Access(access))
