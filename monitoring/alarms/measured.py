"""Defines what a metric returns: a value for each subject, or that it is unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Subject:
    """What a value is about: a group, a topic, something else by its name, or everything."""

    topic: str = ""
    group: str = ""
    name: str = ""

    def __str__(self) -> str:
        if self.name:
            return self.name
        return f"{self.group} on {self.topic}" if self.group else self.topic


class Value(NamedTuple):
    """A value; None is unknown. ``detail`` says in words what is behind it."""

    number: float | None
    detail: str = ""


# A subject that is not there has no trouble: its value is known to be on the quiet side.
Values = Mapping[Subject, Value]
