"""Reads places in a log as people write them, and as EMS prints them: ``orders/2@666,687``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ObjectDoesNotExist

from streams.errors import InvalidPlace
from streams.log.foreign import own_rows
from streams.models import Message, Partition
from streams.models.namespaces import own

# Digits, or groups of them with what languages write between them; "1.5" is none.
NUMBER = r"(?:[0-9]{1,3}(?:[,.'’\u00a0\u202f][0-9]{2,3})*[,.'’\u00a0\u202f][0-9]{3}|[0-9]+)"  # noqa: RUF001
PLACE = re.compile(rf"(?P<log>.+)@(?P<first>{NUMBER})(?: ?[-–…] ?(?P<last>{NUMBER}))?")
# No id and no offset is as high; a column has it.
HIGHEST = 2**62


@dataclass(frozen=True)
class LogPlace:
    """Offsets of a log: of a partition, or of the only one of a topic."""

    log: str
    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> LogPlace:
        """Parse ``orders/2@12``, ``orders/2@666,687``, ``orders@12`` or ``orders/2@12-20``.

        Raises InvalidPlace.
        """
        match = PLACE.fullmatch(text.strip().rstrip(",;"))
        if match is None:
            raise InvalidPlace(
                f"{text!r} is not a place in a log: write orders/2@666687, or orders/2@12-20 for"
                " several."
            )
        first = whole(match["first"])
        return cls(match["log"], first, whole(match["last"]) if match["last"] else first)

    @classmethod
    def of(cls, row: Any) -> LogPlace:
        """Return the place of a row with an offset, or a first and a last one."""
        first = row.offset if hasattr(row, "offset") else row.first_offset
        try:
            log = str(row.partition)
        except ObjectDoesNotExist:
            log = f"#{row.partition_id}"
        return cls(log, first, getattr(row, "last_offset", first))

    @property
    def is_one(self) -> bool:
        return self.first == self.last

    @property
    def topic(self) -> str:
        name, _slash, number = self.log.rpartition("/")
        return name if name and re.fullmatch("[0-9]+", number) else self.log

    def partition(self, using: str) -> Partition | None:
        """Return the partition that is named, if there is one."""
        number = 0 if self.topic == self.log else whole(self.log.rpartition("/")[2])
        rows = Partition.objects.using(using).select_related("topic")
        return rows.filter(own("topic__name"), topic__name=self.topic, number=number).first()

    def __str__(self) -> str:
        last = "" if self.is_one else f"-{self.last}"
        return f"{self.log}@{self.first}{last}"


def whole(text: str) -> int:
    """Return the number of digits that may have separators between them."""
    return min(HIGHEST, int(re.sub("[^0-9]", "", text)[:40]))


def message_name(text: str) -> int | LogPlace:
    """Parse what names a message: its id, or its place in a log; raises InvalidPlace."""
    if re.fullmatch(NUMBER, text.strip()):
        return whole(text)
    try:
        place = LogPlace.parse(text)
    except InvalidPlace:
        place = None
    if place is None or not place.is_one:
        raise InvalidPlace(
            f"{text!r} names no message: write its id, or its place, such as orders/2@666687."
        )
    return place


def message_named(name: int | LogPlace, using: str) -> Message | None:
    """Return the message of this id, or at this place. Indexes: the primary key, ems_msg_log."""
    rows = own_rows(Message.objects.using(using).select_related("partition__topic"), using)
    if isinstance(name, int):
        return rows.filter(pk=name).first()
    partition = name.partition(using)
    if partition is None:
        return None
    return rows.filter(partition=partition.pk, offset=name.first).first()
