"""Defines what a description of a noun is: a class with a field for each column.

Its JSON is the same for the commands and the HTTP API, whose contract is made of these classes; the
table of a command shows some of its columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import attrgetter
from typing import Any, ClassVar, Literal, Self

from django.core.exceptions import ObjectDoesNotExist
from django.core.serializers.json import DjangoJSONEncoder

BodyTypeName = Literal["json", "text", "bytes"]


def column(read: str | Callable[[Any], Any]) -> Any:
    """Return a column that ``read`` finds in a row: a function, or a path of attributes.

    Such as ``group.topic.name``; where one of them is missing, the value is None. Without
    ``column()`` a column is the attribute of its name.
    """
    return field(metadata={"read": _along(read) if isinstance(read, str) else read})


def _along(path: str) -> Callable[[Any], Any]:
    names = path.split(".")

    def read(row: Any) -> Any:
        try:
            return reduce(lambda value, name: value and getattr(value, name), names, row)
        except ObjectDoesNotExist:  # of a loose foreign key
            return None

    return read


@dataclass(frozen=True, kw_only=True)
class Noun:
    """The columns of one row. The name of a duration ends with ``_seconds``, as JSON has it."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"ser_json_timedelta": "float"}

    @classmethod
    def of(cls, row: Any, **known: Any) -> Self:
        """Describe ``row``; the columns that are ``known`` are not read from it."""
        for one in fields(cls):
            if one.name not in known:
                read = one.metadata.get("read", attrgetter(one.name))
                known[one.name] = read(row)
        return cls(**known)

    @classmethod
    def columns(cls) -> list[str]:
        return [one.name for one in fields(cls)]


def written(instant: datetime) -> str:
    """Return an instant as JSON has it: RFC 3339, UTC, with microseconds."""
    return instant.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


class NounEncoder(DjangoJSONEncoder):
    """An encoder of dataclasses, instants as ``written()``, and durations in seconds."""

    def default(self, o: Any) -> Any:
        if is_dataclass(o):
            return {one.name: getattr(o, one.name) for one in fields(o)}
        if isinstance(o, datetime):
            return written(o)
        return o.total_seconds() if isinstance(o, timedelta) else super().default(o)
