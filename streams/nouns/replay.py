"""Describes a replay to a group."""

from __future__ import annotations

from dataclasses import dataclass

from streams.nouns.noun import Noun, column


@dataclass(frozen=True, kw_only=True)
class ReplayPart(Noun):
    """A replay in one partition: the offsets ``first`` … ``end`` - 1."""

    group: str = column("cursor.group.name")
    topic: str = column("cursor.group.topic.name")
    replay: int = column("number")
    partition: int = column("span.partition.number")
    first: int = column("span.first")
    end: int = column("span.end")
    given_out: int
    open: int
    state: str
