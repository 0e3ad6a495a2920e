"""Defines a broadcast consumer of this process: its positions, and what it has done."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from django.db import connections

from streams.conf import name_prefix, settings
from streams.consume.limits import Overrides
from streams.consume.registry import Registration
from streams.process.broadcast.file import Place, PositionFile
from streams.process.broadcast.reader import BroadcastReader
from streams.process.running_group import NextOffsets, RunningGroup
from streams.sharding import home_of


class RunningBroadcastGroup(RunningGroup):
    """Reads, checks and writes the positions of the consumer before anything is consumed.

    Raises StateUnusable, NameTaken, PositionDamaged.
    """

    def __init__(
        self, registration: Registration, using: str, overrides: Overrides, client: str
    ) -> None:
        super().__init__(registration, using, overrides)
        self.client = client
        self.ahead = 0  # how many messages to read at once for a quick handler
        # Another namespace in this database has positions of its own. A topic that was moved to
        # another shard has the same offsets there, so its positions keep their file.
        database = str(connections[home_of(using)].settings_dict["NAME"]) + name_prefix()
        place = Place(database, registration.topic, registration.group, client)
        # An absolute path, since a handler may change the working directory of the process.
        self._folder = Path(settings().STATE_DIR).absolute()
        self._file = PositionFile(self._folder, place)
        self.reader = BroadcastReader(self.group, registration.topic, self._file, using)
        try:
            self.reader.begin()
        except BaseException:
            self.close()
            raise

    def behind(self, ends: Mapping[int, Mapping[int, int]]) -> bool:
        return self.reader.behind(ends.get(self.group.topic_id, {}))

    def close(self) -> None:
        self._file.close()

    def place(self) -> NextOffsets:
        """Return where this client is: its positions are on its disk."""
        return NextOffsets(*self.reader.place())

    def describe(self) -> str:
        whom = f"broadcast to the client {self.client}, positions in {self._folder}"
        return f"{self.name}: {self.registration.name}, {whom}"

    def report(self) -> str:
        """Return a line that says how many messages this process has handled."""
        totals = self.totals
        return (
            f"{self.name}: {totals.done:,} handled, {totals.failed:,} failed,"
            f" {totals.passed:,} without its tags, {self.reader.missed:,} missed"
        )
