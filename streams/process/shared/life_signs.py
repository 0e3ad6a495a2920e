"""Shows a process manager that this process lives: in a file, and on the socket of systemd."""

from __future__ import annotations

import logging
import mmap
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streams.errors import ConfigurationError
from streams.logs import event

logger = logging.getLogger("streams.supervisor")

# What the file says: one word, and its time is that of the last beat.
STARTING, CONSUMING, STOPPING = "starting", "consuming", "stopping"
BEAT_SECONDS = 1.0
# A process whose main thread has not turned for this long hangs. The thread turns twice a second,
# and may wait for about ten seconds at the end, when connections do not close.
HUNG_SECONDS = 20.0
NOTIFY_SECONDS = 1.0


class LifeSigns:
    """What a process shows of its life. This one shows nothing."""

    def beat(self) -> None:
        """Show that the main thread turns."""

    def ready(self) -> None:
        """Show that the process consumes."""

    def stopping(self) -> None:
        """Show that it finishes what runs, and ends."""

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Beat in a thread while the main thread waits for a database, maybe for minutes."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(BEAT_SECONDS):
                self.beat()

        self.beat()
        thread = threading.Thread(target=beat, name="life-signs", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


class ForManager(LifeSigns):
    """The signs that a process manager reads: ``file``, and systemd's socket if it gives one."""

    def __init__(self, file: Path | None = None) -> None:
        """Raise ConfigurationError if the file cannot be written."""
        self._file = file
        self._beat_at = 0.0
        self._is_ready = False
        self._warned = False
        try:
            self._write(STARTING)
        except OSError as error:
            raise ConfigurationError(f"The heartbeat file cannot be written: {error}") from error

    def beat(self) -> None:
        now = time.monotonic()
        if now < self._beat_at:
            return
        self._beat_at = now + BEAT_SECONDS
        _notify("WATCHDOG=1")
        with self._said():
            if self._file:
                os.utime(self._file)

    def ready(self) -> None:
        if self._is_ready:
            return
        self._is_ready = True
        _notify("READY=1")
        with self._said():
            self._write(CONSUMING)

    def stopping(self) -> None:
        self._is_ready = True  # a process that was ready too late does not say so any more
        _notify("STOPPING=1")
        with self._said():
            self._write(STOPPING)

    def _write(self, word: str) -> None:
        if self._file:
            self._file.write_text(f"{word}\n")

    @contextmanager
    def _said(self) -> Iterator[None]:
        """Say once that the file cannot be written; whoever reads it sees that it grows old."""
        try:
            yield
        except OSError as error:
            if not self._warned:
                self._warned = True
                logger.warning(
                    "The heartbeat file cannot be written: %s",
                    error,
                    extra=event("heartbeat.unwritable", error=type(error).__name__),
                )


class Beats:
    """The last beats of forked processes, in memory that they share with their parent."""

    def __init__(self, count: int) -> None:
        self._count = count
        # Of each process when it has last turned, by the clock that all processes have, and whether
        # it has consumed.
        self._cells = memoryview(mmap.mmap(-1, 16 * count)).cast("d")

    def beat(self, number: int) -> None:
        """Count the process ``number``, from 1, as alive."""
        self._cells[2 * number - 2] = time.monotonic()

    def ready(self, number: int) -> None:
        self._cells[2 * number - 1] = 1.0

    def hangs(self, number: int) -> bool:
        return time.monotonic() - self._cells[2 * number - 2] >= HUNG_SECONDS

    @property
    def are_ready(self) -> bool:
        """Tell whether each process has consumed."""
        return all(self._cells[2 * at + 1] for at in range(self._count))


class ForParent(LifeSigns):
    """The signs of one forked process, for its parent."""

    def __init__(self, beats: Beats, number: int) -> None:
        self._beats = beats
        self._number = number

    def beat(self) -> None:
        self._beats.beat(self._number)

    def ready(self) -> None:
        self._beats.ready(self._number)


def _notify(text: str) -> None:
    """Send a line to systemd, as sd_notify(3) does, if it has started this process to be told."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
        to.settimeout(NOTIFY_SECONDS)
        # A name that begins with @ is no file: there the first byte is zero.
        to.connect(f"\0{address[1:]}" if address.startswith("@") else address)
        to.sendall(text.encode())
