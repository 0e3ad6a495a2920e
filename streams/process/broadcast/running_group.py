"""Defines a broadcast consumer of this process: its positions, and what it has done."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from django.db import connections
from django.utils.translation import gettext as _

from streams.conf import settings
from streams.consume.handling import Outcome
from streams.consume.limits import Overrides
from streams.consume.registry import Registration
from streams.process.broadcast.file import Place, PositionFile
from streams.process.broadcast.reader import Reader
from streams.process.running_group import RunningGroup


class RunningBroadcastGroup(RunningGroup):
    """Reads, checks and writes the positions of the consumer before anything is consumed.

    Raises StateUnusable, NameTaken, PositionDamaged.
    """

    def __init__(
        self, registration: Registration, using: str, overrides: Overrides, client: str
    ) -> None:
        super().__init__(registration, using, overrides)
        self.client = client
        self._total = Outcome()
        database = str(connections[using].settings_dict["NAME"])
        place = Place(database, registration.topic, registration.group, client)
        # An absolute path, since a handler may change the working directory of the process.
        self._file = PositionFile(Path(settings().STATE_DIR).absolute(), place)
        self.reader = Reader(self.group, registration.topic, self._file, using)
        try:
            self.reader.begin()
        except BaseException:
            self.close()
            raise

    def behind(self, ends: Mapping[int, Mapping[int, int]]) -> bool:
        return self.reader.behind(ends.get(self.group.topic_id, {}))

    def close(self) -> None:
        self._file.close()

    def add(self, outcome: Outcome) -> None:
        self._total.done += outcome.done
        self._total.failed += outcome.failed
        self._total.passed += outcome.passed

    def describe(self) -> str:
        return _("%(feed)s: %(consumer)s, broadcast to the client %(client)s") % {
            "feed": self.name,
            "consumer": self.registration.name,
            "client": self.client,
        }

    def report(self) -> str:
        """Return a line that says how many messages this process has handled."""
        return _(
            "%(feed)s: %(done)d handled, %(failed)d failed, %(passed)d without its tags,"
            " %(missed)d missed"
        ) % {"feed": self.name, "missed": self.reader.missed, **vars(self._total)}
