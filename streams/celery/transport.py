"""Defines the transport of ``ems://``, which kombu finds by its alias."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import Any

from kombu.transport import base, virtual

from streams.celery import handovers
from streams.celery.channel import Channel
from streams.celery.control import Bindings
from streams.celery.engine import Engine
from streams.celery.naming import Naming
from streams.release import UNKNOWN, version


class Transport(virtual.Transport):  # type: ignore[misc]
    """A connection to the tables of EMS.

    Errors of the database are no errors of the connection: kombu would publish again, outside the
    transaction that has failed. Whoever consumes waits for the database.
    """

    Channel = Channel
    driver_type = "ems"
    driver_name = "django-ems"
    default_port = None
    implements = base.Transport.implements.extend(
        asynchronous=True,
        exchange_type=frozenset(["direct", "topic", "fanout"]),
        heartbeats=False,
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        options = client.transport_options
        self.naming = Naming.of(client.hostname, options)
        self.send_using = self.naming.using if client.hostname else None
        self.bindings = Bindings(self.naming)
        self.consumers: dict[str, Channel] = {}  # by queue
        self._reading, self._writing = -1, -1
        self._pid = os.getpid()
        self._engine: Engine | None = None
        self._pumping = False
        self._ran_here = False

    @property
    def engine(self) -> Engine:
        if self._engine is None or self._pid != os.getpid():
            self._engine = Engine(self.naming, self.signal)
            self._pid = os.getpid()
            self._reading, self._writing = os.pipe()
            os.set_blocking(self._reading, False)
            os.set_blocking(self._writing, False)
        return self._engine

    @property
    def default_connection_params(self) -> dict[str, Any]:
        return {}

    def driver_version(self) -> str:
        return version() or UNKNOWN

    def verify_connection(self, connection: Any) -> bool:
        return True

    def signal(self) -> None:
        """Wake who waits for messages."""
        with suppress(BlockingIOError, OSError):
            os.write(self._writing, b"x")

    def _hush(self) -> None:
        with suppress(BlockingIOError, OSError):
            while os.read(self._reading, 4096):
                pass

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        from celery.signals import task_prerun

        self.engine.wake()  # it makes the pipe
        _acknowledge_at_once(loop)
        loop.add_reader(self._reading, self._on_readable)
        handovers.listen()
        handovers.told.add(self._note_begin)
        task_prerun.connect(self._on_begin)

    def _on_begin(self, task_id: str, **kwargs: Any) -> None:
        """Note a task that begins in this process; handovers.py tells the others."""
        if self._pid == os.getpid() and self._engine is not None:
            self._ran_here = True
            self._note_begin(task_id)

    def _note_begin(self, task_id: str) -> None:
        if self._engine is None:
            return
        for channel in list(self.channels):
            out = channel.intake.out
            self._engine.begun(tag for tag, id_ in list(out.items()) if id_ == task_id)

    def _on_readable(self) -> None:
        self._hush()
        self.pump()
        if self._ran_here:
            self.signal()  # there may be more

    def pump(self, most: int = sys.maxsize) -> int:
        """Hand over what there is, at most ``most`` messages; return how many that were."""
        if self._pumping:  # a task that runs in this thread is done: whoever called it goes on
            return 0
        self._pumping = True
        number = 0
        try:
            # What was handled in this thread is to be acknowledged by its loop before the next.
            self._ran_here = False
            while number < most and not self._ran_here and self._hand_over():
                number += 1
        finally:
            self._pumping = False
        return number

    def _hand_over(self) -> bool:
        engine = self.engine
        for queue, channel in list(self.consumers.items()):
            box = engine.control.boxes.get(queue)
            if box is not None and (post := box.next()) is not None:
                self._deliver(channel.taken(post, box), queue)
                return True
        for channel in list(self.channels):
            intake = channel.intake
            # While the lease is in doubt nothing is handed over: the keeper extends it, or clears
            # the buffer.
            while engine.alive and intake.buffer and intake.room() > 0:
                try:
                    tag, queue, payload = intake.buffer.popleft()
                except IndexError:
                    break
                if queue not in self.consumers:
                    engine.give_back_one(tag)
                    continue
                self._deliver(channel.tagged(payload, tag), queue)
                if queue in channel.no_ack:
                    channel.qos.ack(tag)
                if intake.wants(engine.rate):
                    engine.settled(intake)
                return True
        return False

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Wait for one message, and hand it over; raises socket.timeout."""
        until = None if timeout is None else time.monotonic() + timeout
        engine = self.engine
        engine.start()
        while not self.pump(1):
            if until is not None and time.monotonic() >= until:
                raise TimeoutError
            self._wait(1.0 if until is None else min(1.0, until - time.monotonic()))

    def _wait(self, seconds: float) -> None:
        from select import select

        select([self._reading], [], [], max(0.0, seconds))
        self._hush()

    def close_connection(self, connection: Any) -> None:
        super().close_connection(connection)
        handovers.told.discard(self._note_begin)
        if self._engine is not None and self._pid == os.getpid():
            self._engine.stop()
            for fd in (self._reading, self._writing):
                with suppress(OSError):
                    os.close(fd)
            self._reading = self._writing = -1
            self._engine = None


def _acknowledge_at_once(loop: Any) -> None:
    """Let what ends in the pool be noted as its result is read, not in the next turn of the loop.

    Before that turn the loop may give the process its next task: killed then, both would run again.
    Celery puts acknowledgements off for transports that write to a socket; these write to memory.
    """
    later = loop.call_soon
    if getattr(later, "at_once", False):  # a loop outlives its connections
        return

    def call_soon(callback: Any, *args: Any) -> Any:
        message = getattr(getattr(callback, "fun", None), "__self__", None)
        if isinstance(message, virtual.Message) and isinstance(message.channel, Channel):
            callback(*args)
            return callback
        return later(callback, *args)

    call_soon.at_once = True  # type: ignore[attr-defined]
    loop.call_soon = call_soon
